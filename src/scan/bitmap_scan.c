/*-------------------------------------------------------------------------
 *
 * bitmap_scan.c
 *		Leaf pages of btrees read ahead for bitmap index scans.
 *
 * A bitmap index scan has no function that returns a row: the bitmap heap scan
 * above it calls the access method's amgetbitmap, which goes through all of its
 * range at once.  So that function is replaced, in the relation cache of this
 * process, for the indexes of such nodes.  Ours takes the same steps as the
 * server's, with the access method's own functions, page by page, and reads
 * leaf pages ahead in between.
 *
 * An index's entry in the relation cache keeps the replaced function while the
 * index is open, as it is for the node's life.  Should it be rebuilt, the
 * server's function is called: nothing is read ahead then.  If ours is called
 * for a scan that is not of a node taken here, it calls the server's.
 *
 * The scans below a BitmapOr follow each other, whatever they find.  So what
 * one of them does not need of the distance is used for those that come after
 * it, if their keys are known or can be computed without executing a plan.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/amapi.h"
#include "access/nbtree.h"
#include "catalog/catalog.h"
#include "catalog/pg_am_d.h"
#include "compat_scan.h"
#include "exec/explain.h"
#include "exec/takeover.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "nodes/tidbitmap.h"
#include "observe/profile.h"
#include "scan/leaves_ahead.h"
#include "scan/scan.h"
#include "utils/rel.h"

/* A bitmap index scan that has been taken over, or a BitmapOr. */
typedef struct BitmapNode
{
	AheadNode base;
	dlist_node	link;			/* entry of a scan in "nodes" */
	bool		linked;			/* "parent" and "next" are known */
	struct BitmapNode *parent;	/* of a scan: the BitmapOr above, or NULL */
	struct BitmapNode *next;	/* the next scan below that BitmapOr */
	bool		after_another;	/* the child before it is none of ours */
	bool		prepared;		/* its keys have been preprocessed early */
	LeavesAhead *leaves;		/* a BitmapOr has those of its first scan */
} BitmapNode;

static dlist_head nodes = DLIST_STATIC_INIT(nodes);

/* The routine of btrees with our function in it; made at the first use. */
static IndexAmRoutine routine;

static inline BitmapIndexScanState *
state_of(const BitmapNode *node)
{
	return (BitmapIndexScanState *) node->base.plan_state;
}

/* Does this entry of "nodes" stand for a scan? */
static inline bool
is_of_scan(dlist_node *link, IndexScanDesc scan)
{
	return state_of(dlist_container(BitmapNode, link, link))->biss_ScanDesc ==
		scan;
}

/*
 * The node whose scan this is, or NULL.  Looked for from both ends, since a
 * query goes round its scans, or has changed between a few of them lately: what
 * is found comes first then, and the scan that was found longest ago is last.
 */
static BitmapNode *
find_node(IndexScanDesc scan)
{
	dlist_node *last = nodes.head.prev;
	dlist_iter	iter;

	dlist_foreach(iter, &nodes)
	{
		dlist_node *found = is_of_scan(iter.cur, scan) ? iter.cur :
			is_of_scan(last, scan) ? last : NULL;

		if (found != NULL)
		{
			dlist_move_head(&nodes, found);
			return dlist_container(BitmapNode, link, found);
		}
		if (last == iter.cur || last->prev == iter.cur)
			break;
		last = last->prev;
	}
	return NULL;
}

/* Find out which scans follow each other below the BitmapOrs of a query. */
static void
link_nodes(AheadQuery *query, const AheadMethods *methods)
{
	for (AheadNode *base = query->first; base != NULL; base = base->next)
	{
		BitmapNode *parent = (BitmapNode *) base;
		BitmapOrState *state = (BitmapOrState *) base->plan_state;
		BitmapNode *before = NULL;
		bool		another = false;

		if (base->methods != methods)
			continue;
		parent->linked = true;
		for (int i = 0; IsA(state, BitmapOrState) && i < state->nplans; i++)
		{
			AheadNode	   *child = AheadNodeFind(state->bitmapplans[i]);

			if (child == NULL || child->methods != methods ||
				!IsA(child->plan_state, BitmapIndexScanState))
			{
				another = true;
				continue;
			}
			((BitmapNode *) child)->parent = parent;
			((BitmapNode *) child)->after_another = another;
			another = false;
			if (before != NULL)
				before->next = (BitmapNode *) child;
			before = (BitmapNode *) child;
		}
	}
}

/* Create the state for looking ahead; false if the scan must not look ahead. */
static bool
make_leaves(BitmapNode *node)
{
	if (node->leaves != NULL)
		return true;
	node->leaves = LeavesAheadCreate(&node->base,
									 state_of(node)->biss_RelationDesc, true);
	if (node->leaves == NULL)
		return false;
	if (node->parent != NULL && node->parent->leaves == NULL)
		node->parent->leaves = node->leaves;
	else if (node->parent != NULL)
		LeavesAheadShare(node->leaves, node->parent->leaves);
	return true;
}

/*
 * Evaluate and preprocess a scan's keys before its turn; false if they have to
 * wait for it.  All scans below a BitmapOr are executed, so that no expression
 * is evaluated here that stock would not evaluate.  Expressions with subqueries
 * wait, since their work is counted when they are executed.  Keys that the
 * server computes after a scan that is none of ours wait, too (after_another):
 * if both raise an error, it must be the error of the first one.
 */
static bool
prepare_keys(BitmapNode *node, bool after_another)
{
	BitmapIndexScanState *state = state_of(node);
	PlanState  *plan_state = &state->ss.ps;
	Bitmapset  *params = plan_state->plan->allParam;
	int			param = -1;

	if (state->biss_NumRuntimeKeys > 0 &&
		(!state->biss_RuntimeKeysReady || plan_state->chgParam != NULL))
	{
		if (plan_state->subPlan != NIL || after_another)
			return false;
		while ((param = bms_next_member(params, param)) >= 0)
			if (plan_state->state->es_param_exec_vals[param].execPlan != NULL)
				return false;
		ExecReScan(plan_state);
		node->prepared = false;
	}
	if (!node->prepared)
		LookaheadPreprocessKeys(state->biss_ScanDesc);
	node->prepared = true;
	return true;
}

/*
 * Read ahead for the next scans below the same BitmapOr, as far as the distance
 * allows.  Their keys are preprocessed here, and not again at their turn.
 */
static void
fill_next(BitmapNode *node)
{
	int			room = LeavesAheadRoom(node->leaves);
	bool		after_another = false;
	MemoryContext old;

	old = MemoryContextSwitchTo(node->base.query->estate->es_query_cxt);
	for (BitmapNode *next = node->next; next != NULL && room > 0;
		 next = next->next)
	{
		CHECK_FOR_INTERRUPTS();
		after_another |= next->after_another;
		if (!make_leaves(next) || !prepare_keys(next, after_another))
			break;
		room -= LeavesAheadFillAtStart(next->leaves,
									   state_of(next)->biss_ScanDesc, room);
	}
	MemoryContextSwitchTo(old);
}

/* Go to the first page of a search that holds matches, or to the next one. */
static bool
step(BitmapNode *node, IndexScanDesc scan, bool begins, bool *more)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;
	const int64 *reads = UsageReads(scan->indexRelation);
	int64		reads_before = *reads;
	bool		active =
		node->leaves != NULL && LeavesAheadIsActive(node->leaves);
	LeafStep	leaf_step;
	int			none = 0;
	bool		found;

	if (active)
		LeavesAheadBefore(node->leaves, scan, ForwardScanDirection, &leaf_step);
	found = begins ? _bt_first(scan, ForwardScanDirection) :
		_bt_next(scan, ForwardScanDirection);
	*more = found ||
		(so->numArrayKeys > 0 && LookaheadBTreeSearchesAgain(scan));
	if (active)
	{
		LeavesAheadAfter(node->leaves, scan, ForwardScanDirection, &leaf_step,
						 !*more, &none);
		if (found && LeavesAheadRoom(node->leaves) > 0)
			LeavesAheadFill(node->leaves, scan, ForwardScanDirection,
							PG_INT64_MAX);
		if (node->next != NULL && LeavesAheadListEnds(node->leaves))
			fill_next(node);
	}
	else if (unlikely(*reads != reads_before))
	{
		if (make_leaves(node))
			LeavesAheadReadSeen(node->leaves);
	}
	return found;
}

/* Add the matches of the scan's page to the bitmap; return their number. */
static int
add_matches(BTScanPos pos, TIDBitmap *tbm)
{
	ItemPointerData tids[MaxTIDsPerBTreePage];
	int			n = 0;

	for (int i = pos->itemIndex; i <= pos->lastItem; i++)
		tids[n++] = pos->items[i].heapTid;
	tbm_add_tuples(tbm, tids, n, false);
	pos->itemIndex = pos->lastItem;
	return n;
}

/* The amgetbitmap function of btrees, for the nodes that were taken over. */
static int64
getbitmap(IndexScanDesc scan, TIDBitmap *tbm)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;
	BitmapNode *node = find_node(scan);
	int64		ntids = 0;
	bool		found;
	bool		more;

	if (node == NULL)
		return btgetbitmap(scan, tbm);
	if (!node->linked)
		link_nodes(node->base.query, node->base.methods);
	if (node->parent != NULL && node->parent->leaves != NULL)
		(void) make_leaves(node);
	do
	{
		found = step(node, scan, true, &more);
		while (found)
		{
			CHECK_FOR_INTERRUPTS();
			ntids += add_matches(&so->currPos, tbm);
			found = step(node, scan, false, &more);
		}
	} while (more);
	if (node->leaves != NULL)
		LeavesAheadForget(node->leaves);
	node->prepared = false;
	return ntids;
}

/*
 * Make an index use our amgetbitmap.  Return false if its routine is not
 * exactly what its handler returns, since another extension has then replaced
 * it.
 */
static bool
replace_routine(Relation index)
{
	IndexAmRoutine stock;

	if (index->rd_indam == &routine)
		return true;
	LookaheadStockRoutine(index->rd_amhandler, &stock);
	if (stock.amgetbitmap != btgetbitmap ||
		memcmp(index->rd_indam, &stock, sizeof(stock)) != 0)
		return false;
	routine = stock;
	routine.amgetbitmap = getbitmap;
	LookaheadSetRoutine(index, &routine);
	return true;
}

static bool
bitmap_serves(PlanState *plan_state, const char **refusal)
{
	Relation	index;

	if (IsA(plan_state, BitmapOrState))
		return true;
	if (!IsA(plan_state, BitmapIndexScanState))
		return false;
	index = ((BitmapIndexScanState *) plan_state)->biss_RelationDesc;
	if (index == NULL || index->rd_rel->relam != BTREE_AM_OID)
		return false;
	if (lookahead_max_distance == 0)
		*refusal = "pg_lookahead.max_distance is 0";
	else if (!LookaheadReadsAreAsync() && !LookaheadAdviceIsUseful())
		*refusal = "reads are synchronous and direct";
	else if (IsCatalogRelationOid(index->rd_index->indrelid))
		*refusal = "system catalog";
	else if (!replace_routine(index))
		*refusal = "index access method of an extension";
	return true;
}

/* All of "nodes" belong to queries that have not been ended. */
static void
check_nodes(void)
{
#ifdef USE_ASSERT_CHECKING
	dlist_iter	iter;

	dlist_foreach(iter, &nodes)
	{
		const BitmapNode *node = dlist_container(BitmapNode, link, iter.cur);

		Assert(!node->base.query->ended);
		Assert(AheadNodeFind(node->base.plan_state) == &node->base);
	}
#endif
}

static void
bitmap_begin(AheadNode *base)
{
	if (IsA(base->plan_state, BitmapIndexScanState))
	{
		check_nodes();
		dlist_push_head(&nodes, &((BitmapNode *) base)->link);
		ScansServed++;
	}
}

static void
bitmap_end(AheadNode *base)
{
	BitmapNode *node = (BitmapNode *) base;

	if (!IsA(base->plan_state, BitmapIndexScanState))
		return;
	dlist_delete(&node->link);
	if (node->leaves != NULL)
		LeavesAheadEnd(node->leaves);
}

/* A BitmapOr has the reads of its first scan. */
static void
bitmap_wait_for_reads(const AheadNode *base)
{
	const BitmapNode *node = (const BitmapNode *) base;

	if (node->leaves != NULL)
		LeavesAheadWait(node->leaves);
}

#if LOOKAHEAD_HAVE_EXPLAIN_HOOK

#include "commands/explain_format.h"
#include "commands/explain_state.h"

static void
bitmap_explain(AheadNode *base, bool asked, ExplainState *es)
{
	BitmapNode *node = (BitmapNode *) base;
	ScanCounters counters = {0};

	if (!IsA(base->plan_state, BitmapIndexScanState))
		return;
	if (node->leaves != NULL)
		counters = LeavesAheadTell(node->leaves);
	if (counters.leaf_reads == 0)
	{
		if (asked)
			AheadExplainUnused("nothing to wait for", es);
	}
	else if (es->format == EXPLAIN_FORMAT_TEXT)
	{
		ExplainIndentText(es);
		appendStringInfoString(es->str, "Look-Ahead: ");
		LeavesAheadExplain(&counters, es);
		appendStringInfoChar(es->str, '\n');
	}
	else
	{
		ExplainPropertyText("Look-Ahead", "used", es);
		LeavesAheadExplain(&counters, es);
	}
}

#define EXPLAIN_BITMAP bitmap_explain
#else
#define EXPLAIN_BITMAP NULL
#endif

static const AheadMethods methods = {
	.enabled = &lookahead_index_pages,
	.size = sizeof(BitmapNode),
	.serves = bitmap_serves,
	.begin = bitmap_begin,
	.end = bitmap_end,
	.wait = bitmap_wait_for_reads,
	.explain = EXPLAIN_BITMAP,
};

void
BitmapScanInit(void)
{
	TakeoverRegister(&methods);
}
