/*-------------------------------------------------------------------------
 *
 * scan.c
 *		Which index scans are taken over, and what EXPLAIN says of them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_am_d.h"
#include "compat.h"
#include "exec/ahead_node.h"
#include "exec/takeover.h"
#include "index/btree_keys.h"
#include "index/scan_position.h"
#include "read/uncount.h"
#include "scan/scan.h"
#include "scan/scan_node.h"
#include "utils/rel.h"

/* The reason why a scan is left to the server. */
static inline Refusal
scan_refusal_of(Relation heap, Relation index, ScanKey keys, int nkeys,
				int norderbys)
{
	Refusal		refusal;

	/* test this first, as the shortest queries have the least time to lose */
	if (BTreeKeysAreUnique(index, keys, nkeys))
		return REFUSED_ONE_ROW;
	refusal = SettingsRefusal();
	if (refusal == NOT_REFUSED && norderbys > 0)
		refusal = REFUSED_ORDERED_BY_DISTANCE;
	if (refusal == NOT_REFUSED)
		refusal = TakeoverTableRefusal(heap);
	if (refusal == NOT_REFUSED && !ScanPositionIsKnown(index))
		refusal = REFUSED_INDEX_METHOD;
	return refusal;
}

static bool
scan_serves(PlanState *plan_state, Refusal *refusal)
{
	const IndexScanState *scan = (const IndexScanState *) plan_state;
	const IndexOnlyScanState *only = (const IndexOnlyScanState *) plan_state;
	bool		is_only = IsA(plan_state, IndexOnlyScanState);
	Relation	heap;
	Relation	index;

	if (!is_only && !IsA(plan_state, IndexScanState))
		return false;
	heap = scan->ss.ss_currentRelation;
	index = is_only ? only->ioss_RelationDesc : scan->iss_RelationDesc;
	if (heap == NULL || index == NULL)
		return false;
	*refusal = is_only ?
		scan_refusal_of(heap, index, only->ioss_ScanKeys,
						only->ioss_NumScanKeys, only->ioss_NumOrderByKeys) :
		scan_refusal_of(heap, index, scan->iss_ScanKeys,
						scan->iss_NumScanKeys, scan->iss_NumOrderByKeys);
	return true;
}

static bool
scan_foresee(PlanState *plan_state, Refusal *refusal)
{
	*refusal =
		ConcurrencyRefusal(((ScanState *) plan_state)->ss_currentRelation);
	return true;
}

static void
scan_begin(AheadNode *base)
{
	ScanNode   *node = (ScanNode *) base;
	ScanState  *state = (ScanState *) base->plan_state;

	node->reads = UsageReads(state->ss_currentRelation);
	node->reads_seen = *node->reads;
	node->last_block = InvalidBlockNumber;

	/* the second entry is looked at: no other came before the first one */
	node->looked_at = (uint64) 1 - LOOK_ENTRIES;
	JudgeInit(&node->judge, JUDGE_HEAP_PAGES, lookahead_debug_force);
	base->plan_state->ExecProcNodeReal =
		IsA(state, IndexScanState) ? ScanNextRow : ScanNextIndexOnlyRow;
	ScansServed++;
}

/*
 * The next entries of a btree scan, up to the end of its leaf page, are looked
 * at by ScanStep(), one by one.
 */
static bool
scan_bound_search(AheadNode *base)
{
	ScanNode   *node = (ScanNode *) base;
	const PlanState *scan = base->plan_state;
	Relation	index = IsA(scan, IndexScanState) ?
		((const IndexScanState *) scan)->iss_RelationDesc :
		((const IndexOnlyScanState *) scan)->ioss_RelationDesc;

	if (index->rd_rel->relam != BTREE_AM_OID)
		return false;
	node->quiet_until = node->returned;
	return true;
}

static void
scan_end(AheadNode *base)
{
	ScanNode   *node = (ScanNode *) base;

	if (node->ahead != NULL)
		HeapAheadEnd(node->ahead);
	if (node->ring != NULL)
		LeafRingEnd(node->ring);
}

/* Why was nothing read ahead? */
static Refusal
scan_reason_of(const ScanNode *node)
{
	ScanState  *state = (ScanState *) node->base.plan_state;

	if (ConcurrencyRefusal(state->ss_currentRelation) != NOT_REFUSED)
		return REFUSED_NO_CONCURRENCY;
	if (node->judge.forbidden)
		return REFUSED_TEMPORARY_SCANS;
	if (node->ahead != NULL)
		return REFUSED_NOTHING_TO_READ;
	return JudgeReason(&node->judge);
}

/* Report on heap blocks. */
static void
scan_report_blocks(const HeapAheadReport *blocks, bool shown,
				   AheadReport *report)
{
	const ScanCounters *c = &blocks->counters.totals;
	bool		sorted = shown && blocks->sorted;

#define ADD(label, property, value) \
	AheadReportAdd(report, shown ? label : NULL, property, value)

	ADD("blocks read", "Blocks Read", c->blocks_read);
	ADD("cached", "Blocks Cached", c->blocks_hit);
	ADD("missed", "Blocks Missed", c->blocks_direct);
	ADD("unused", "Blocks Unused", c->blocks_unused);
	ADD(" reads", "Reads", c->reads);
	ADD("waits", "Waits", c->stalls);
	AheadReportMean(report, shown ? " distance mean" : NULL, "Mean Distance",
					blocks->mean_distance);
	ADD("max", "Maximum Distance", c->max_distance);
#undef ADD
	AheadReportAdd(report, NULL, "Issue Order", 0);
	report->figures[report->n - 1].word = blocks->sorted ? "block" : "index";
	AheadReportAdd(report, sorted ? " sorted" : NULL, "Blocks Sorted",
				   blocks->counters.largest_batch);
	AheadReportAdd(report, sorted ? "combined" : NULL, "Reads Combined",
				   c->reads_combined);
	AheadReportAdd(report, sorted ? "evicted" : NULL, "Blocks Evicted",
				   c->blocks_evicted);
}

static void
scan_report(AheadNode *base, AheadReport *report)
{
	ScanNode   *node = (ScanNode *) base;
	HeapAheadReport blocks = {0};
	ScanCounters leaves = {0};
	bool		has_blocks;

	if (node->ring != NULL)
		leaves = LeafRingCounters(node->ring);
	if (node->ahead != NULL)
	{
		HeapAheadForget(node->ahead);	/* what is left in it is not used */
		blocks = HeapAheadCounters(node->ahead);
	}
	has_blocks = blocks.counters.totals.blocks_read > 0 ||
		blocks.counters.totals.blocks_hit > 0;
	if (!has_blocks && leaves.leaf_reads == 0)
	{
		report->reason = scan_reason_of(node);
		return;
	}
	scan_report_blocks(&blocks, has_blocks, report);
	LeafRingReport(&leaves, report);
}

static const AheadMethods scan_methods = {
	.enabled = &lookahead_index_scan,
	.size = sizeof(ScanNode),
	.serves = scan_serves,
	.foresee = scan_foresee,
	.begin = scan_begin,
	.end = scan_end,
	.bound_search = scan_bound_search,
	.report = scan_report,
};

void
ScanInit(void)
{
	TakeoverRegister(&scan_methods);
}
