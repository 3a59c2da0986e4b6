/*-------------------------------------------------------------------------
 *
 * scan.c
 *		Which index scans are taken over, and what EXPLAIN says of them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "catalog/catalog.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_index.h"
#include "compat.h"
#include "exec/explain.h"
#include "exec/takeover.h"
#include "executor/instrument.h"
#include "index/scan_position.h"
#include "scan/scan.h"
#include "scan/scan_node.h"
#include "utils/rel.h"
#include "utils/spccache.h"

/*
 * Does a scan ask for one key of a unique index?  Then there is no second row
 * to look ahead to.
 */
static inline bool
scan_is_unique_lookup(Relation index, ScanKey keys, int nkeys)
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

/* The reason why a scan is left to the server, or NULL. */
static inline const char *
scan_refusal_of(Relation heap, Relation index, ScanKey keys, int nkeys,
		   int norderbys)
{
	/* test this first, as the shortest queries have the least time to lose */
	if (scan_is_unique_lookup(index, keys, nkeys))
		return "at most one row";
	if (lookahead_max_distance == 0)
		return "pg_lookahead.max_distance is 0";
	if (!LookaheadReadsAreAsync() && !LookaheadAdviceIsUseful())
		return "reads are synchronous and direct";
	if (norderbys > 0)
		return "ordered by distance";
	if (heap->rd_tableam != GetHeapamTableAmRoutine())
		return "not a heap table";
	if (IsCatalogRelation(heap))
		return "system catalog";
	if (!ScanPositionIsKnown(index))
		return "index access method of an extension";
	return NULL;
}

static bool
scan_serves(PlanState *plan_state, const char **refusal)
{
	Relation	heap;

	if (IsA(plan_state, IndexScanState))
	{
		IndexScanState *state = (IndexScanState *) plan_state;

		heap = state->ss.ss_currentRelation;
		if (heap == NULL || state->iss_RelationDesc == NULL)
			return false;
		*refusal = scan_refusal_of(heap, state->iss_RelationDesc,
							  state->iss_ScanKeys, state->iss_NumScanKeys,
							  state->iss_NumOrderByKeys);
		return true;
	}
	if (IsA(plan_state, IndexOnlyScanState))
	{
		IndexOnlyScanState *state = (IndexOnlyScanState *) plan_state;

		heap = state->ss.ss_currentRelation;
		if (heap == NULL || state->ioss_RelationDesc == NULL)
			return false;
		*refusal = scan_refusal_of(heap, state->ioss_RelationDesc,
							  state->ioss_ScanKeys, state->ioss_NumScanKeys,
							  state->ioss_NumOrderByKeys);
		return true;
	}
	return false;
}

/* The index that a node scans. */
static inline Relation
scan_index_of(const ScanState *state)
{
	return IsA(state, IndexScanState) ?
		((const IndexScanState *) state)->iss_RelationDesc :
		((const IndexOnlyScanState *) state)->ioss_RelationDesc;
}

static void
scan_begin(AheadNode *base)
{
	ScanNode   *node = (ScanNode *) base;
	ScanState  *state = (ScanState *) base->plan_state;

	node->reads = RelationUsesLocalBuffers(state->ss_currentRelation) ?
		&pgBufferUsage.local_blks_read : &pgBufferUsage.shared_blks_read;
	node->reads_seen = *node->reads;
	node->last_block = InvalidBlockNumber;
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
	ScanState  *state = (ScanState *) base->plan_state;

	if (scan_index_of(state)->rd_rel->relam != BTREE_AM_OID)
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

static void
scan_wait_for_reads(const AheadNode *base)
{
	const ScanNode *node = (const ScanNode *) base;

	if (node->ahead != NULL)
		HeapAheadWait(node->ahead);
	if (node->ring != NULL)
		LeafRingWait(node->ring);
}

#if LOOKAHEAD_HAVE_EXPLAIN_HOOK

#include "commands/explain_format.h"
#include "commands/explain_state.h"

/* Were heap blocks looked at ahead? */
static inline bool
scan_has_blocks(const HeapAheadReport *report)
{
	return report->counters.blocks_read > 0 || report->counters.blocks_hit > 0;
}

/* Why was nothing read ahead? */
static const char *
scan_reason_of(const ScanNode *node)
{
	ScanState  *state = (ScanState *) node->base.plan_state;

	if (get_tablespace_io_concurrency(
			state->ss_currentRelation->rd_rel->reltablespace) == 0)
		return "effective_io_concurrency is 0";
	if (node->judge.forbidden)
		return "too many scans of temporary tables";
	if (node->ahead != NULL)
		return "nothing could be read ahead";
	return JudgeReason(&node->judge);
}

/* Append the part of the line that is about heap blocks. */
static void
scan_explain_blocks(const HeapAheadReport *report, ExplainState *es)
{
	const ScanCounters *c = &report->counters;

	appendStringInfo(es->str,
					 " blocks read=" UINT64_FORMAT
					 " cached=" UINT64_FORMAT " missed=" UINT64_FORMAT
					 " unused=" UINT64_FORMAT "  reads=" UINT64_FORMAT
					 " waits=" UINT64_FORMAT "  distance mean=%.1f max="
					 UINT64_FORMAT,
					 c->blocks_read, c->blocks_hit, c->blocks_direct,
					 c->blocks_unused, c->reads, c->stalls,
					 report->mean_distance, c->max_distance);
	if (report->sorted)
		appendStringInfo(es->str,
						 "  sorted=%d combined=" UINT64_FORMAT
						 " evicted=" UINT64_FORMAT,
						 report->largest_batch, c->reads_combined,
						 c->blocks_evicted);
}

static void
scan_explain_text(const HeapAheadReport *report, const ScanCounters *leaves,
			 const char *scope, ExplainState *es)
{
	ExplainIndentText(es);
	appendStringInfo(es->str, "Look-Ahead%s:", scope);
	if (scan_has_blocks(report))
		scan_explain_blocks(report, es);
	if (leaves->leaf_reads > 0)
	{
		appendStringInfoString(es->str, scan_has_blocks(report) ? "  " : " ");
		LeafRingExplain(leaves, es);
	}
	appendStringInfoChar(es->str, '\n');
}

static void
scan_explain_properties(const HeapAheadReport *report,
						const ScanCounters *leaves, ExplainState *es)
{
	const ScanCounters *c = &report->counters;

	ExplainPropertyUInteger("Look-Ahead Blocks Read", NULL, c->blocks_read, es);
	ExplainPropertyUInteger("Look-Ahead Blocks Cached", NULL, c->blocks_hit, es);
	ExplainPropertyUInteger("Look-Ahead Blocks Missed", NULL, c->blocks_direct, es);
	ExplainPropertyUInteger("Look-Ahead Blocks Unused", NULL, c->blocks_unused, es);
	ExplainPropertyUInteger("Look-Ahead Reads", NULL, c->reads, es);
	ExplainPropertyUInteger("Look-Ahead Waits", NULL, c->stalls, es);
	ExplainPropertyFloat("Look-Ahead Mean Distance", NULL, report->mean_distance, 1, es);
	ExplainPropertyUInteger("Look-Ahead Maximum Distance", NULL, c->max_distance, es);
	ExplainPropertyText("Look-Ahead Issue Order", report->sorted ? "block" : "index", es);
	ExplainPropertyInteger("Look-Ahead Blocks Sorted", NULL, report->largest_batch, es);
	ExplainPropertyUInteger("Look-Ahead Reads Combined", NULL, c->reads_combined, es);
	ExplainPropertyUInteger("Look-Ahead Blocks Evicted", NULL, c->blocks_evicted, es);
	LeafRingExplain(leaves, es);
}

/*
 * The figures are those of the process that runs EXPLAIN; what parallel
 * workers did is in the view lookahead.index_scan_stats only.
 */
static void
scan_explain(AheadNode *base, bool asked, ExplainState *es)
{
	ScanNode   *node = (ScanNode *) base;
	bool		leader_only = base->plan_state->worker_instrument != NULL &&
		base->plan_state->worker_instrument->num_workers > 0;
	HeapAheadReport report = {0};
	ScanCounters leaves = {0};

	if (node->ring != NULL)
		leaves = LeafRingTell(node->ring);
	if (node->ahead != NULL)
	{
		HeapAheadPause(node->ahead);	/* what is left in it is not used */
		report = HeapAheadTell(node->ahead);
	}
	if (!scan_has_blocks(&report) && leaves.leaf_reads == 0)
	{
		if (asked)
			AheadExplainUnused(scan_reason_of(node), es);
	}
	else if (es->format == EXPLAIN_FORMAT_TEXT)
		scan_explain_text(&report, &leaves, leader_only ? " of leader" : "", es);
	else
	{
		ExplainPropertyText("Look-Ahead", "used", es);
		if (leader_only)
			ExplainPropertyBool("Look-Ahead of Leader Only", true, es);
		scan_explain_properties(&report, &leaves, es);
	}
}

#define EXPLAIN_SCAN scan_explain
#else
#define EXPLAIN_SCAN NULL
#endif

static const AheadMethods scan_methods = {
	.enabled = &lookahead_index_scan,
	.size = sizeof(ScanNode),
	.serves = scan_serves,
	.begin = scan_begin,
	.end = scan_end,
	.wait = scan_wait_for_reads,
	.bound_search = scan_bound_search,
	.explain = EXPLAIN_SCAN,
};

void
ScanInit(void)
{
	TakeoverRegister(&scan_methods);
}
