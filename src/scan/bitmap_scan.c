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

#include "access/nbtree.h"
#include "catalog/catalog.h"
#include "catalog/pg_am_d.h"
#include "compat_scan.h"
#include "exec/takeover.h"
#include "executor/executor.h"
#include "index/btree_keys.h"
#include "index/index_routine.h"
#include "miscadmin.h"
#include "nodes/tidbitmap.h"
#include "scan/leaf_ring.h"
#include "scan/scan.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/rel.h"

/* A bitmap index scan that has been taken over, or a BitmapOr. */
typedef struct BitmapNode
{
	AheadNode base;
	IndexScanDesc scan;			/* NULL for a BitmapOr */
	struct BitmapNode *parent;	/* of a scan: the BitmapOr above, or NULL */
	struct BitmapNode *next;	/* the next scan below that BitmapOr */
	bool		after_another;	/* the child before it is not taken */
	bool		prepared;		/* its keys have been preprocessed early */
	LeafRing   *ring;			/* a BitmapOr has that of its first scan */
} BitmapNode;

/* The nodes by their scans: getbitmap() is given only a scan. */
typedef struct BitmapEntry
{
	IndexScanDesc scan;
	BitmapNode *node;
} BitmapEntry;

static HTAB *bitmap_nodes;

static inline BitmapIndexScanState *
bitmap_state(const BitmapNode *node)
{
	return (BitmapIndexScanState *) node->base.plan_state;
}

/* The ring of a scan's leaf pages. */
static LeafRing *
bitmap_ring(BitmapNode *node)
{
	BitmapNode *parent = node->parent;

	if (node->ring == NULL)
		node->ring =
			LeafRingCreate(&node->base, node->scan, true,
						   parent != NULL ? parent->ring : NULL);
	if (parent != NULL && parent->ring == NULL)
		parent->ring = node->ring;
	return node->ring;
}

/*
 * Evaluate and preprocess a scan's keys before its turn; false if they have to
 * wait for it.  All scans below a BitmapOr are executed, so that no expression
 * is evaluated here that stock would not evaluate.  Expressions with subqueries
 * wait, since their work is counted when they are executed.  Keys that the
 * server computes after a scan that is not taken wait, too (after_another):
 * if both raise an error, it must be the error of the first one.
 */
static bool
bitmap_prepare_keys(BitmapNode *node, bool after_another)
{
	BitmapIndexScanState *state = bitmap_state(node);
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
		LookaheadPreprocessKeys(node->scan);
	node->prepared = true;
	return true;
}

/*
 * Read ahead for the next scans below the same BitmapOr, as far as the distance
 * allows.  Their keys are preprocessed here, and not again at their turn.
 */
static void
bitmap_fill_next(BitmapNode *node)
{
	int			room = LeafRingRoom(node->ring);
	bool		after_another = false;
	MemoryContext old;

	old = MemoryContextSwitchTo(node->base.query->estate->es_query_cxt);
	for (BitmapNode *next = node->next; next != NULL && room > 0;
		 next = next->next)
	{
		CHECK_FOR_INTERRUPTS();
		after_another |= next->after_another;
		if (!bitmap_prepare_keys(next, after_another))
			break;
		room -= LeafRingFillAtStart(bitmap_ring(next), next->scan, room);
	}
	MemoryContextSwitchTo(old);
}

/*
 * Go to the first page of a search that holds matches, or to the next one;
 * false if there is none.  *more: there is one, or another search may find
 * some.
 */
static bool
bitmap_step(BitmapNode *node, bool begins, bool *more)
{
	IndexScanDesc scan = node->scan;
	const int64 *reads = UsageReads(scan->indexRelation);
	int64		reads_before = *reads;
	bool		active = node->ring != NULL && LeafRingIsActive(node->ring);
	LeafStep	leaf_step;
	bool		found;

	if (active)
		LeafRingBefore(node->ring, scan, ForwardScanDirection, &leaf_step);
	found = begins ? _bt_first(scan, ForwardScanDirection) :
		_bt_next(scan, ForwardScanDirection);
	*more = found || (((BTScanOpaque) scan->opaque)->numArrayKeys > 0 &&
					  LookaheadBTreeSearchesAgain(scan));
	if (active)
	{
		LeafRingAfter(node->ring, scan, &leaf_step, !*more);
		if (found)
			LeafRingFill(node->ring, scan, PG_INT64_MAX);
		if (node->next != NULL && LeafRingIsComplete(node->ring))
			bitmap_fill_next(node);
	}
	else if (unlikely(*reads != reads_before))
		LeafRingReadSeen(bitmap_ring(node), scan);
	return found;
}

/* Add the matches of the scan's page to the bitmap; return their number. */
static int
bitmap_add_matches(BTScanPos pos, TIDBitmap *tbm)
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
bitmap_getbitmap(IndexScanDesc scan, TIDBitmap *tbm)
{
	BTScanPos	pos = &((BTScanOpaque) scan->opaque)->currPos;
	BitmapEntry *entry = hash_search(bitmap_nodes, &scan, HASH_FIND, NULL);
	BitmapNode *node;
	int64		ntids = 0;
	bool		found;
	bool		more;

	if (entry == NULL)
		return btgetbitmap(scan, tbm);
	node = entry->node;
	if (node->parent != NULL && node->parent->ring != NULL)
		(void) bitmap_ring(node);
	do
	{
		for (found = bitmap_step(node, true, &more); found;
			 found = bitmap_step(node, false, &more))
		{
			CHECK_FOR_INTERRUPTS();
			ntids += bitmap_add_matches(pos, tbm);
		}
	} while (more);
	if (node->ring != NULL)
		LeafRingForget(node->ring);
	node->prepared = false;
	return ntids;
}

static bool
bitmap_serves(PlanState *plan_state, Refusal *refusal)
{
	static const IndexMembers members = {.amgetbitmap = bitmap_getbitmap};
	const BitmapIndexScanState *state =
		(const BitmapIndexScanState *) plan_state;
	Relation	index;

	if (IsA(plan_state, BitmapOrState))
		return true;
	if (!IsA(plan_state, BitmapIndexScanState))
		return false;
	index = state->biss_RelationDesc;
	if (index == NULL || index->rd_rel->relam != BTREE_AM_OID)
		return false;
	*refusal = SettingsRefusal();
	if (*refusal != NOT_REFUSED)
		return true;
	if (IsCatalogRelationOid(index->rd_index->indrelid))
		*refusal = REFUSED_CATALOG;
	else
		*refusal = BTreeComparisonsRefusal(index, state->biss_ScanKeys,
										   state->biss_NumScanKeys);
	if (*refusal == NOT_REFUSED &&
		(index->rd_amhandler != F_BTHANDLER ||
		 !IndexRoutineAdd(index, &members)))
		*refusal = REFUSED_INDEX_METHOD;
	return true;
}

/* A BitmapOr has no line of its own. */
static bool
bitmap_foresee(PlanState *plan_state, Refusal *refusal)
{
	if (IsA(plan_state, BitmapOrState))
		return false;
	*refusal = ConcurrencyRefusal(
		((BitmapIndexScanState *) plan_state)->biss_RelationDesc);
	return true;
}

/*
 * Find out which scans follow each other below a BitmapOr.  They have been
 * taken before it.
 */
static void
bitmap_link(BitmapNode *parent, const BitmapOrState *state)
{
	BitmapNode *before = NULL;
	bool		another = false;

	for (int i = 0; i < state->nplans; i++)
	{
		BitmapNode *node = (BitmapNode *) AheadNodeFind(state->bitmapplans[i]);

		if (node == NULL || node->base.methods != parent->base.methods ||
			node->scan == NULL)
		{
			another = true;
			continue;
		}
		node->parent = parent;
		node->after_another = another;
		another = false;
		if (before != NULL)
			before->next = node;
		before = node;
	}
}

static void
bitmap_begin(AheadNode *base)
{
	BitmapNode *node = (BitmapNode *) base;
	BitmapEntry *entry;
	bool		found;

	if (IsA(base->plan_state, BitmapOrState))
	{
		bitmap_link(node, (BitmapOrState *) base->plan_state);
		return;
	}
	node->scan = bitmap_state(node)->biss_ScanDesc;
	entry = hash_search(bitmap_nodes, &node->scan, HASH_ENTER, &found);
	entry->node = node;
	if (found)
		elog(ERROR, "bitmap index scan of an ended query was kept");
	ScansServed++;
}

static void
bitmap_end(AheadNode *base)
{
	BitmapNode *node = (BitmapNode *) base;

	if (node->scan == NULL)
		return;
	(void) hash_search(bitmap_nodes, &node->scan, HASH_REMOVE, NULL);
	if (node->ring != NULL)
		LeafRingEnd(node->ring);
}

static void
bitmap_report(AheadNode *base, AheadReport *report)
{
	BitmapNode *node = (BitmapNode *) base;
	ScanCounters counters = {0};

	if (node->scan == NULL)
		return;
	if (node->ring != NULL)
		counters = LeafRingCounters(node->ring);
	if (counters.leaf_reads == 0)
		report->reason = REFUSED_NOTHING_TO_WAIT_FOR;
	else
		LeafRingReport(&counters, report);
}

static const AheadMethods bitmap_methods = {
	.enabled = &lookahead_index_pages,
	.size = sizeof(BitmapNode),
	.serves = bitmap_serves,
	.foresee = bitmap_foresee,
	.begin = bitmap_begin,
	.end = bitmap_end,
	.report = bitmap_report,
};

void
BitmapScanInit(void)
{
	HASHCTL		ctl = {.keysize = sizeof(IndexScanDesc),
					   .entrysize = sizeof(BitmapEntry)};

	bitmap_nodes = hash_create("look-ahead bitmap index scans", 32, &ctl,
							   HASH_ELEM | HASH_BLOBS);
	TakeoverRegister(&bitmap_methods);
}
