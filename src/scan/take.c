/*-------------------------------------------------------------------------
 *
 * take.c
 *		Taking over the index scan nodes of a query.
 *
 * A query is planned and started as always.  Then every IndexScanState and
 * IndexOnlyScanState of its plan-state tree that look-ahead can serve gets
 * another ExecProcNodeReal.  Nothing else of the plan is touched, so that
 * plans, costs, EXPLAIN, cursors and parallel workers (which come through the
 * same hook) stay as they are.
 *
 * The nodes become known, that is, each gets a ScanNode, when one of them
 * proves to be worth it (see stock.c).  Under EXPLAIN ANALYZE, which shows
 * all of them, they are known from the start.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "catalog/catalog.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_index.h"
#include "compat.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "scan/node.h"
#include "utils/rel.h"
#include "utils/spccache.h"

/* Of its heap, its index and the visibility map; two of them also ahead. */
#define PINS_OF_A_SCAN 5

static inline Relation
index_of(PlanState *plan_state)
{
	return IsA(plan_state, IndexScanState) ?
		((IndexScanState *) plan_state)->iss_RelationDesc :
		((IndexOnlyScanState *) plan_state)->ioss_RelationDesc;
}

/* Is this an index scan, started with all that it needs? */
static inline bool
is_scan(PlanState *plan_state)
{
	return (IsA(plan_state, IndexScanState) ||
			IsA(plan_state, IndexOnlyScanState)) &&
		index_of(plan_state) != NULL &&
		((ScanState *) plan_state)->ss_currentRelation != NULL;
}

/* For btree, the server returns a row for each live entry. */
bool
ScanNodeIsSelective(PlanState *plan_state)
{
	return plan_state->qual != NULL ||
		index_of(plan_state)->rd_rel->relam != BTREE_AM_OID;
}

/*
 * Does a scan ask for one key of a unique index?  Then there is no second row
 * to look ahead to.
 */
static inline bool
is_unique_lookup(Relation index, ScanKey keys, int nkeys)
{
	int			columns;

	if (index->rd_rel->relam != BTREE_AM_OID ||
		!index->rd_index->indisunique || !index->rd_index->indimmediate)
		return false;
	columns = IndexRelationGetNumberOfKeyAttributes(index);
	if (nkeys < columns)
		return false;

	/* the keys come in the order of the columns */
	for (int i = 0; i < columns; i++)
		if (keys[i].sk_attno != i + 1 ||
			keys[i].sk_strategy != BTEqualStrategyNumber ||
			(keys[i].sk_flags & (SK_SEARCHARRAY | SK_ROW_HEADER)) != 0)
			return false;
	return true;
}

/* Gather the range table's indexes of the scans of a plan. */
static bool
gather_scans(PlanState *plan_state, void *context)
{
	Bitmapset **scans = context;

	if (plan_state == NULL)
		return false;
	if (is_scan(plan_state))
		*scans = bms_add_member(*scans,
								((Scan *) plan_state->plan)->scanrelid);
	return planstate_tree_walker(plan_state, gather_scans, context);
}

/*
 * The tables that a query changes and has more than one of our scans of.  A
 * page that one of these holds ahead could not be pruned by another; it would
 * lack the room for new row versions that it has without us.
 */
static List *
changed_and_scanned_twice(QueryDesc *queryDesc)
{
	EState	   *estate = queryDesc->estate;
	Bitmapset  *scans = NULL;
	List	   *changed = NIL;
	List	   *scanned = NIL;
	List	   *twice = NIL;
	ListCell   *cell;
	Oid			last = InvalidOid;
	int			rti = -1;

	if (list_length(estate->es_range_table) < 2)
		return NIL;
	gather_scans(queryDesc->planstate, &scans);
	while ((rti = bms_next_member(scans, rti)) >= 0)
		scanned = lappend_oid(scanned, exec_rt_fetch(rti, estate)->relid);
	bms_free(scans);
	if (list_length(scanned) < 2)
		return NIL;

	foreach(cell, estate->es_opened_result_relations)
	{
		ResultRelInfo *result = lfirst(cell);

		changed = lappend_oid(changed,
							  RelationGetRelid(result->ri_RelationDesc));
	}
	list_sort(scanned, list_oid_cmp);
	foreach(cell, scanned)
	{
		if (lfirst_oid(cell) == last && list_member_oid(changed, last))
			twice = list_append_unique_oid(twice, last);
		last = lfirst_oid(cell);
	}
	list_free(scanned);
	list_free(changed);
	return twice;
}

/* The same; most queries change nothing. */
static inline List *
scanned_twice(QueryDesc *queryDesc)
{
	return queryDesc->estate->es_opened_result_relations == NIL ?
		NIL : changed_and_scanned_twice(queryDesc);
}

static bool
count_temporary(PlanState *plan_state, void *context)
{
	int		   *scans = context;

	if (plan_state == NULL)
		return false;
	if (is_scan(plan_state) && RelationUsesLocalBuffers(
			((ScanState *) plan_state)->ss_currentRelation))
		(*scans)++;
	return planstate_tree_walker(plan_state, count_temporary, context);
}

/*
 * Has a query so many scans of temporary tables that what look-ahead holds
 * might leave one of them without a buffer?  Up to a quarter of the buffers may
 * be held ahead; the scans themselves are to do with the rest.
 */
static bool
temporary_buffers_are_short(QueryDesc *queryDesc)
{
	int			most = num_temp_buffers / 4 * 3 / PINS_OF_A_SCAN;
	int			scans = 0;

	if (list_length(queryDesc->estate->es_range_table) <= most)
		return false;
	count_temporary(queryDesc->planstate, &scans);
	return scans > most;
}

/*
 * Why look-ahead can never serve a node, or NULL if it can.  The answer stays
 * the same as long as the query lives.
 */
static inline const char *
refusal_of(PlanState *plan_state, List *twice)
{
	Relation	heap = ((ScanState *) plan_state)->ss_currentRelation;
	Relation	index = index_of(plan_state);
	ScanKey		keys;
	int			nkeys;
	int			norderbys;

	if (IsA(plan_state, IndexScanState))
	{
		keys = ((IndexScanState *) plan_state)->iss_ScanKeys;
		nkeys = ((IndexScanState *) plan_state)->iss_NumScanKeys;
		norderbys = ((IndexScanState *) plan_state)->iss_NumOrderByKeys;
	}
	else
	{
		keys = ((IndexOnlyScanState *) plan_state)->ioss_ScanKeys;
		nkeys = ((IndexOnlyScanState *) plan_state)->ioss_NumScanKeys;
		norderbys = ((IndexOnlyScanState *) plan_state)->ioss_NumOrderByKeys;
	}
	/* first, as the shortest of queries have the least time to lose */
	if (is_unique_lookup(index, keys, nkeys))
		return "at most one row";
	if (!LookaheadReadsAreAsync() && !LookaheadAdviceIsUseful())
		return "reads are synchronous and direct";
	if (norderbys > 0)
		return "ordered by distance";
	if (heap->rd_tableam != GetHeapamTableAmRoutine())
		return "not a heap table";
	if (IsCatalogRelation(heap))
		return "system catalog";
	if (!ScoutSupportsIndex(index))
		return "index access method of an extension";
	if (twice != NIL && list_member_oid(twice, RelationGetRelid(heap)))
		return "the query changes and scans this table twice";
	return NULL;
}

/* Why it is not to, as things are when the query starts. */
static const char *
refusal_by_settings(PlanState *plan_state)
{
	Relation	heap = ((ScanState *) plan_state)->ss_currentRelation;

	if (lookahead_max_distance == 0)
		return "pg_lookahead.max_distance is 0";
	if (plan_state->state->es_instrument != 0 &&
		get_tablespace_io_concurrency(heap->rd_rel->reltablespace) == 0)
		return SCAN_NO_CONCURRENCY;
	return NULL;
}

typedef struct Taking
{
	ScanQuery  *query;			/* made when its first node is found */
	List	   *twice;
	bool		is_running;
	bool		temporary_short;
} Taking;

/* Make a node known, if look-ahead serves it; see ScanQueryTake(). */
static void
take_node(const Taking *taking, PlanState *plan_state)
{
	Relation	heap = ((ScanState *) plan_state)->ss_currentRelation;
	const char *refusal = refusal_of(plan_state, taking->twice);
	ExecProcNodeMtd stock = plan_state->ExecProcNodeReal;
	ScanNode   *node;

	if (refusal == NULL && taking->temporary_short &&
		RelationUsesLocalBuffers(heap))
		refusal = "too many scans of temporary tables";
	if (refusal == NULL && !taking->is_running)
		refusal = refusal_by_settings(plan_state);

	/* the reason is of interest to EXPLAIN ANALYZE only */
	if (refusal != NULL && taking->query->estate->es_instrument == 0)
		return;
	if (ScanNodeSearch(plan_state) != NULL)
		return;					/* a subplan may be met twice */
	node = ScanNodeAdd(taking->query, plan_state);
	node->refusal = refusal;
	if (refusal != NULL)
		return;

	/* once the query runs, others may have wrapped our function */
	if (taking->is_running || stock == ScanNodeExec)
		stock = lookahead_usual_stock[node->index_only];
	else
	{
		plan_state->ExecProcNodeReal = ScanNodeExec;
		ScanStatsServed++;
	}
	node->stock = stock;
	PolicyInit(node);
}

/* Note on every scan that feeds a LIMIT directly that it does. */
static void
note_limit(PlanState *plan_state, LimitState *limit)
{
	ScanNode   *node;

	if (plan_state == NULL)
		return;
	check_stack_depth();
	switch (nodeTag(plan_state))
	{
		case T_IndexScanState:
		case T_IndexOnlyScanState:
			node = ScanNodeFor(plan_state);
			if (node != NULL)
				node->limit = limit;
			break;
		case T_AppendState:
			for (int i = 0; i < ((AppendState *) plan_state)->as_nplans; i++)
				note_limit(((AppendState *) plan_state)->appendplans[i], limit);
			break;
		case T_MergeAppendState:
			for (int i = 0; i < ((MergeAppendState *) plan_state)->ms_nplans;
				 i++)
				note_limit(((MergeAppendState *) plan_state)->mergeplans[i],
						   limit);
			break;
		case T_ResultState:
		case T_LockRowsState:
			if (plan_state->qual == NULL)
				note_limit(outerPlanState(plan_state), limit);
			break;
		case T_SubqueryScanState:
			if (plan_state->qual == NULL)
				note_limit(((SubqueryScanState *) plan_state)->subplan, limit);
			break;
		default:
			break;
	}
}

static bool
take_nodes(PlanState *plan_state, void *context)
{
	Taking	   *taking = context;
	bool		result;

	if (plan_state == NULL)
		return false;
	if (is_scan(plan_state))
	{
		if (taking->query == NULL)
			taking->query = ScanQueryMake(plan_state->state);
		take_node(taking, plan_state);
	}
	result = planstate_tree_walker(plan_state, take_nodes, context);
	if (IsA(plan_state, LimitState))
		note_limit(outerPlanState(plan_state), (LimitState *) plan_state);
	return result;
}

void
ScanQueryTake(QueryDesc *queryDesc, bool is_running)
{
	Taking		taking = {NULL, scanned_twice(queryDesc), is_running,
						  temporary_buffers_are_short(queryDesc)};
	ScanNode   *top;

	take_nodes(queryDesc->planstate, &taking);
	top = ScanNodeFor(queryDesc->planstate);
	if (top != NULL)
		top->is_top = true;
}

/*
 * Let a scan be served by ScanNodeExec().  False if it has another function
 * than is usual, perhaps another extension's: then the nodes of its query must
 * be known from the start.
 */
static bool
serve_scan(PlanState *plan_state, List *twice)
{
	ExecProcNodeMtd *usual =
		&lookahead_usual_stock[IsA(plan_state, IndexOnlyScanState)];

	if (refusal_of(plan_state, twice) != NULL ||
		plan_state->ExecProcNodeReal == ScanNodeExec)
		return true;
	if (*usual == NULL)
		*usual = plan_state->ExecProcNodeReal;
	if (plan_state->ExecProcNodeReal != *usual)
		return false;
	plan_state->ExecProcNodeReal = ScanNodeExec;
	ScanStatsServed++;

	/* also, another node may have been at this address before */
	ScanNodeRemember(plan_state, *usual, ScanNodeIsSelective(plan_state));
	return true;
}

/* Are there plans in a node's expressions, or run before it? */
static inline bool
has_subplans(PlanState *plan_state)
{
	return plan_state->initPlan != NIL || plan_state->subPlan != NIL;
}

/*
 * The same for all scans of a query; returns true if it did not do for all.
 * Most short queries are a scan below nodes of one child: no recursion then.
 */
static bool
serve_scans(PlanState *plan_state, void *context)
{
	List	   *twice = context;

	if (plan_state == NULL)
		return false;
	while (outerPlanState(plan_state) != NULL &&
		   innerPlanState(plan_state) == NULL && !has_subplans(plan_state) &&
		   !IsA(plan_state, CustomScanState))
		plan_state = outerPlanState(plan_state);
	if (is_scan(plan_state))
	{
		if (!serve_scan(plan_state, twice))
			return true;
		if (!has_subplans(plan_state))
			return false;
	}
	return planstate_tree_walker(plan_state, serve_scans, context);
}

void
ScanQueryStart(QueryDesc *queryDesc)
{
	if (queryDesc->estate->es_instrument != 0 || lookahead_debug_force)
		ScanQueryTake(queryDesc, false);
	else if (lookahead_max_distance != 0 &&
			 serve_scans(queryDesc->planstate, scanned_twice(queryDesc)))
		ScanQueryTake(queryDesc, false);
}
