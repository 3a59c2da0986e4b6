/*-------------------------------------------------------------------------
 *
 * profile_query.c
 *		The setting of function profiles, and what can be profiled of a query
 *		from outside, whether it looks ahead or not: its scan nodes, and the
 *		access methods of its indexes.
 *
 * A node gets another ExecProcNodeReal when its query starts, as in
 * exec/takeover.c and for the same reasons; ours is around that of look-ahead.
 *
 * An access method is called through the routine that hangs on the index in
 * the relation cache of this process.  That of a profiled index is a copy in
 * which two functions are ours, and it stays there until the entry is rebuilt.
 * The invariant: there is one copy for each access method, in memory that is
 * never freed, and our functions find the stock ones by the index's access
 * method alone.  So a pointer to such a copy always works, and so does a copy
 * of it.  Access methods of other extensions are left alone.
 * Calls that come from no scan node, such as those of the planner, which looks
 * for the ends of an index, are not counted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relscan.h"
#include "catalog/pg_am_d.h"
#include "common/hashfn.h"
#include "compat.h"
#include "enabled.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "observe/profile.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"

typedef struct ProfileNode
{
	PlanState  *plan_state;
	ProfileFunction function;	/* what its calls count as */
	ExecProcNodeMtd inner;		/* the ExecProcNode that it calls */
	char		status;
} ProfileNode;

#define SH_PREFIX profilenode
#define SH_ELEMENT_TYPE ProfileNode
#define SH_KEY_TYPE PlanState *
#define SH_KEY plan_state
#define SH_HASH_KEY(tb, key) murmurhash32((uint32) (((uintptr_t) (key)) >> 4))
#define SH_EQUAL(tb, a, b) ((a) == (b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* An access method, its stock routine, and a copy with our functions. */
typedef struct ProfileMethod
{
	Oid			am;
	IndexAmRoutine stock;		/* not known yet if its type is not set */
	IndexAmRoutine profiled;
} ProfileMethod;

static ProfileMethod methods[] = {
	{BTREE_AM_OID}, {HASH_AM_OID},	 {GIST_AM_OID},
	{GIN_AM_OID},	{SPGIST_AM_OID}, {BRIN_AM_OID},
};

static profilenode_hash *nodes = NULL;
static ExecutorStart_hook_type prev_ExecutorStart = NULL;

/* The method of an index, NULL if it is not one of PostgreSQL's own. */
static ProfileMethod *
profile_method_of(Relation index)
{
	for (Size i = 0; i < lengthof(methods); i++)
		if (methods[i].am == index->rd_rel->relam)
			return &methods[i];
	return NULL;
}

static bool
profile_amgettuple(IndexScanDesc scan, ScanDirection direction)
{
	ProfileMethod *method = profile_method_of(scan->indexRelation);

	if (!ProfileIsInside())
		return method->stock.amgettuple(scan, direction);
	return PROFILED(PROFILE_AMGETTUPLE,
					method->stock.amgettuple(scan, direction));
}

static int64
profile_amgetbitmap(IndexScanDesc scan, TIDBitmap *bitmap)
{
	ProfileMethod *method = profile_method_of(scan->indexRelation);

	if (!ProfileIsInside())
		return method->stock.amgetbitmap(scan, bitmap);
	return PROFILED(PROFILE_AMGETBITMAP,
					method->stock.amgetbitmap(scan, bitmap));
}

static bool
profile_is_profiled(const IndexAmRoutine *routine)
{
	return routine->amgettuple == profile_amgettuple ||
		routine->amgetbitmap == profile_amgetbitmap;
}

static void
profile_index(Relation index)
{
	ProfileMethod *method = profile_method_of(index);

	if (method == NULL || profile_is_profiled(index->rd_indam))
		return;
	if (method->stock.type == T_Invalid)
	{
		method->profiled = *GetIndexAmRoutineByAmId(method->am, false);
		method->stock = method->profiled;
		if (method->stock.amgettuple != NULL)
			method->profiled.amgettuple = profile_amgettuple;
		if (method->stock.amgetbitmap != NULL)
			method->profiled.amgetbitmap = profile_amgetbitmap;
	}
	LookaheadSetRoutine(index, &method->profiled);
}

const IndexAmRoutine *
ProfileStockRoutine(Relation index)
{
	return profile_is_profiled(index->rd_indam) ?
		&profile_method_of(index)->stock : index->rd_indam;
}

static TupleTableSlot *
profile_exec_node(PlanState *plan_state)
{
	ProfileNode *found = profilenode_lookup(nodes, plan_state);
	ProfileNode node;

	if (unlikely(found == NULL))
		elog(ERROR, "scan node is not known to pg_lookahead's profile");
	node = *found;				/* the table may grow meanwhile */
	return PROFILED(node.function, node.inner(plan_state));
}

/* Called when the memory of a query goes away, after an error or not. */
static void
profile_forget_node(void *plan_state)
{
	profilenode_delete(nodes, plan_state);
}

/* False if the node has been taken before. */
static bool
profile_node(PlanState *plan_state, ProfileFunction function)
{
	MemoryContextCallback *forget;
	ProfileNode *node;
	bool		found;

	if (profilenode_lookup(nodes, plan_state) != NULL)
		return false;
	forget = MemoryContextAlloc(plan_state->state->es_query_cxt,
								sizeof(MemoryContextCallback));
	forget->func = profile_forget_node;
	forget->arg = plan_state;
	node = profilenode_insert(nodes, plan_state, &found);
	node->function = function;
	node->inner = plan_state->ExecProcNodeReal;
	MemoryContextRegisterResetCallback(plan_state->state->es_query_cxt, forget);
	plan_state->ExecProcNodeReal = profile_exec_node;
	return true;
}

static bool
profile_nodes(PlanState *plan_state, void *context)
{
	ProfileFunction function = PROFILE_NFUNCTIONS;	/* none */
	Relation	index = NULL;

	if (plan_state == NULL)
		return false;
	switch (nodeTag(plan_state))
	{
		case T_IndexScanState:
			function = PROFILE_INDEX_SCAN;
			index = ((IndexScanState *) plan_state)->iss_RelationDesc;
			break;
		case T_IndexOnlyScanState:
			function = PROFILE_INDEX_ONLY_SCAN;
			index = ((IndexOnlyScanState *) plan_state)->ioss_RelationDesc;
			break;
		case T_BitmapHeapScanState:
			function = PROFILE_BITMAP_HEAP_SCAN;
			break;
		case T_BitmapIndexScanState:
			index = ((BitmapIndexScanState *) plan_state)->biss_RelationDesc;
			break;
		default:
			break;
	}
	if (function != PROFILE_NFUNCTIONS &&
		!profile_node(plan_state, function))
		return false;			/* a subplan may be met twice */
	if (index != NULL)
		profile_index(index);
	return planstate_tree_walker(plan_state, profile_nodes, context);
}

static void
profile_ExecutorStart(QueryDesc *queryDesc, int eflags)
{
	prev_ExecutorStart(queryDesc, eflags);
	if (!lookahead_track_functions || (eflags & EXEC_FLAG_EXPLAIN_ONLY) != 0 ||
		queryDesc->planstate == NULL)
		return;
	if (nodes == NULL)
	{
		nodes = profilenode_create(TopMemoryContext, 64, NULL);
		lookahead_profile_usage_before = pgBufferUsage;
	}
	profile_nodes(queryDesc->planstate, NULL);
}

void
ProfileInit(void)
{
	DefineCustomBoolVariable("pg_lookahead.track_functions",
							 "Records the calls and times of functions of scans, diagnostics and VACUUM.",
							 "Takes effect with the next query.",
							 &lookahead_track_functions,
							 false,
							 PGC_SUSET,
							 0,
							 NULL, NULL, NULL);
	ProfileStackInit();
	ProfileRecordInit();
	INSTALL_HOOK(ExecutorStart, profile_ExecutorStart);
}
