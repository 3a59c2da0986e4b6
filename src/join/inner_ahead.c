/*-------------------------------------------------------------------------
 *
 * inner_ahead.c
 *		The pages that the inner index scan of a nested loop will need for outer
 *		rows to come; see inner_ahead.h.
 *
 * The keys of a row are evaluated whenever they are needed, from the values in
 * its slot, so that none of them has to be kept.  The parameters by which a
 * nested loop hands them to its inner side are set for that, and set back.
 *
 * Pages above the leaves are nearly always cached, and are looked at one after
 * the other.  Leaf pages and heap pages are asked for, and their reads are
 * started together.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/visibilitymap.h"
#include "access/xact.h"
#include "catalog/pg_am_d.h"
#include "compat.h"
#include "executor/executor.h"
#include "index/hash_lookup.h"
#include "exec/rows_wanted.h"
#include "join/harmless.h"
#include "join/infallible.h"
#include "join/inner_ahead.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "stream/uncount.h"
#include "utils/datum.h"
#include "utils/rel.h"

/* The most heap blocks that are read ahead for one row: its first ones. */
#define MAX_BLOCKS 16

/* The most index pages visited for one row: its levels, and steps right. */
#define MAX_STEPS 16

/* The number of keys that a Memoize node is assumed to remember. */
#define RECENT_KEYS 1024

/* A key whose argument depends on parameters. */
typedef struct RowKey
{
	int			key;
	ExprState  *argument;
	bool		toastable;
} RowKey;

/* A heap block that a row has asked for. */
typedef struct WantedBlock
{
	BlockNumber block;
	InnerRow   *row;
	uint32		serial;			/* the row's serial when it was queued */
} WantedBlock;

struct InnerAhead
{
	Relation	heap;
	Relation	index;
	bool		index_only;
	bool		ignore_killed;
	int			most_blocks;	/* most heap blocks read ahead for one row */
	InnerShared *shared;
	JoinCounters *counters;
	BTreeLookup *lookup;		/* NULL if it is a hash index */
	HashLookup *hash;

	List	   *other_params;	/* other ones than the outer row's */
	int			nkeys;
	ScanKey		keys;
	int			nrow_keys;
	RowKey	   *row_keys;
	List	   *conditions;		/* ExprStates: without them no scan is begun */
	uint32	   *recent;			/* hashes of recent keys; NULL: no Memoize */

	/* pages whose read was started last, by block number modulo the size */
	int			table_size;
	PageRead   *index_pages;
	PageRead   *heap_pages;

	/* asked for, and not yet started */
	int			nleaves;
	int			leaves_size;
	InnerRow  **leaves;
	int			nblocks;
	int			blocks_size;
	WantedBlock *blocks;

	bool		behind;			/* wanted reads wait for others to end */
	BlockNumber index_size;		/* blocks when last looked up, or Invalid */
	BlockNumber heap_size;
	Buffer		vm_buffer;		/* visibility map page, pinned while open */
	BlockNumber last_block;		/* heap block that was read ahead last */

	int			index_owed;		/* reads owed; see uncount.h */
	int			heap_owed;
	int			heap_ahead;		/* of these, for rows that are not over */
	int			heap_arrived;	/* of these, for the row that the join is at */
	CountsBefore index_before;
	CountsBefore heap_before;
};

/* Facts about a scan from its plan node. */
typedef struct ScanFacts
{
	Relation	heap;
	Relation	index;
	ScanKey		keys;
	int			nkeys;
	IndexRuntimeKeyInfo *runtime_keys;
	int			nruntime_keys;
	ScanDirection direction;
	bool		index_only;
} ScanFacts;

static bool
facts_of(PlanState *scan, ScanFacts *facts)
{
	*facts = (ScanFacts) {.direction = ForwardScanDirection};
	if (IsA(scan, IndexScanState))
	{
		IndexScanState *state = (IndexScanState *) scan;

		facts->heap = state->ss.ss_currentRelation;
		facts->index = state->iss_RelationDesc;
		facts->keys = state->iss_ScanKeys;
		facts->nkeys = state->iss_NumScanKeys;
		facts->runtime_keys = state->iss_RuntimeKeys;
		facts->nruntime_keys = state->iss_NumRuntimeKeys;
		facts->direction = ((IndexScan *) scan->plan)->indexorderdir;
	}
	else if (IsA(scan, IndexOnlyScanState))
	{
		IndexOnlyScanState *state = (IndexOnlyScanState *) scan;

		facts->heap = state->ss.ss_currentRelation;
		facts->index = state->ioss_RelationDesc;
		facts->keys = state->ioss_ScanKeys;
		facts->nkeys = state->ioss_NumScanKeys;
		facts->runtime_keys = state->ioss_RuntimeKeys;
		facts->nruntime_keys = state->ioss_NumRuntimeKeys;
		facts->direction = ((IndexOnlyScan *) scan->plan)->indexorderdir;
		facts->index_only = true;
	}
	else
	{
		BitmapIndexScanState *state =
			(BitmapIndexScanState *) outerPlanState(scan);

		facts->heap = ((BitmapHeapScanState *) scan)->ss.ss_currentRelation;
		facts->index = state->biss_RelationDesc;
		facts->keys = state->biss_ScanKeys;
		facts->nkeys = state->biss_NumScanKeys;
		facts->runtime_keys = state->biss_RuntimeKeys;
		facts->nruntime_keys = state->biss_NumRuntimeKeys;
	}
	return facts->heap != NULL && facts->index != NULL;
}

PlanState *
InnerIndexScan(PlanState *node)
{
	while (node != NULL && !node->plan->parallel_aware)
		switch (nodeTag(node))
		{
			case T_IndexScanState:
			case T_IndexOnlyScanState:
			case T_AppendState:
			case T_MergeAppendState:
				return node;
			case T_BitmapHeapScanState:
				return IsA(outerPlanState(node), BitmapIndexScanState) ?
					node : NULL;
			case T_SubqueryScanState:
				node = ((SubqueryScanState *) node)->subplan;
				break;
			case T_MemoizeState:
			case T_LimitState:
			case T_AggState:
			case T_SortState:
			case T_IncrementalSortState:
			case T_UniqueState:
			case T_GroupState:
			case T_WindowAggState:
			case T_MaterialState:
			case T_ResultState:
			case T_NestLoopState:
				node = outerPlanState(node);
				break;
			default:
				return NULL;
		}
	return NULL;
}

Relation
InnerTable(PlanState *scan)
{
	ScanFacts	facts;

	return facts_of(scan, &facts) ? facts.heap : NULL;
}

bool
InnerIndexIsKnown(PlanState *scan)
{
	ScanFacts	facts;

	return facts_of(scan, &facts) &&
		(facts.index->rd_rel->relam == BTREE_AM_OID ||
		 facts.index->rd_rel->relam == HASH_AM_OID);
}

int64
InnerMisses(PlanState *scan)
{
	ScanFacts	facts;
	const PgStat_TableCounts *heap,
			   *index;

	(void) facts_of(scan, &facts);
	if (!pgstat_should_count_relation(facts.heap) ||
		!pgstat_should_count_relation(facts.index))
		return -1;
	heap = &facts.heap->pgstat_info->counts;
	index = &facts.index->pgstat_info->counts;
	return heap->blocks_fetched - heap->blocks_hit +
		index->blocks_fetched - index->blocks_hit;
}

/*
 * May an expression be evaluated for an outer row that is ahead?  Clears
 * *infallible if only because the row will be asked for.
 */
static bool
is_known_early(InnerAhead *inner, Node *expression, bool *infallible)
{
	if (!IsInfallible(expression))
	{
		if (inner->shared->infallible)
			return false;
		*infallible = false;
	}
	return HarmlessExpression(expression, inner->shared->settings_stay,
							  &inner->other_params);
}

/* Find the keys whose arguments depend on parameters; return a refusal. */
static const char *
find_keys(InnerAhead *inner, const ScanFacts *facts, bool *infallible)
{
	inner->nkeys = facts->nkeys;
	inner->keys = palloc_array(ScanKeyData, facts->nkeys);
	memcpy(inner->keys, facts->keys, facts->nkeys * sizeof(ScanKeyData));
	inner->row_keys = palloc_array(RowKey, facts->nruntime_keys);
	for (int i = 0; i < facts->nruntime_keys; i++)
	{
		IndexRuntimeKeyInfo *info = &facts->runtime_keys[i];
		RowKey	   *row_key = &inner->row_keys[inner->nrow_keys];
		int			key = info->scan_key - facts->keys;

		/* skip members of row comparisons: they have their own list */
		if (key < 0 || key >= facts->nkeys ||
			!BTreeLookupUses(info->scan_key))
			continue;
		if (!is_known_early(inner, (Node *) info->key_expr->expr, infallible))
			return "a key of the inner scan is no plain value";
		row_key->key = key;
		row_key->argument = info->key_expr;
		row_key->toastable = info->key_toastable;
		inner->nrow_keys++;
	}
	return OuterValuesRemove(inner->shared->values, &inner->other_params) ?
		NULL : "the inner scan has no key of the outer row";
}

/*
 * Find the conditions on the outer row, between a node and one below it,
 * without which the server does not begin what is below; return a refusal.
 */
static const char *
find_conditions(InnerAhead *inner, PlanState *node, const PlanState *below,
				bool *infallible)
{
	for (; node != below && node != NULL;
		 node = IsA(node, SubqueryScanState) ?
			((SubqueryScanState *) node)->subplan : outerPlanState(node))
	{
		ExprState  *condition;

		if (!IsA(node, ResultState))
			continue;
		condition = ((ResultState *) node)->resconstantqual;
		if (condition == NULL)
			continue;
		if (!is_known_early(inner, ((Result *) node->plan)->resconstantqual,
							infallible))
			return "a condition of the inner scan is no plain value";
		inner->conditions = lappend(inner->conditions, condition);
	}
	(void) OuterValuesRemove(inner->shared->values, &inner->other_params);
	return NULL;
}

/* Is there a Memoize node above the scan? */
static bool
is_memoized(NestLoopState *join, PlanState *scan)
{
	for (PlanState *node = innerPlanState(join); node != scan && node != NULL;
		 node = IsA(node, SubqueryScanState) ?
			((SubqueryScanState *) node)->subplan : outerPlanState(node))
		if (IsA(node, MemoizeState))
			return true;
	return false;
}

/* Bound the rows of a node by those between it and one above. */
static void
bound_rows(RowBounds *bounds, PlanState *node, const PlanState *below)
{
	for (; node != below && node != NULL;
		 node = IsA(node, SubqueryScanState) ?
			((SubqueryScanState *) node)->subplan : outerPlanState(node))
		RowBoundsBelow(bounds, node);
}

/* The number of rows that a LIMIT will ask for, as far as its plan tells. */
static int
constant_limit(const LimitState *limit)
{
	const Limit *plan = (const Limit *) limit->ps.plan;
	int64		rows = 0;
	Node	   *numbers[] = {plan->limitCount, plan->limitOffset};

	for (int i = 0; i < lengthof(numbers); i++)
	{
		const Const *number = (const Const *) numbers[i];

		if (number == NULL)
			continue;
		if (!IsA(number, Const) || number->constisnull)
			return 1;
		rows += Min(DatumGetInt64(number->constvalue), PG_INT32_MAX);
	}
	return (int) Max(1, Min(rows, PG_INT32_MAX));
}

int
InnerRowsAsked(NestLoopState *join, PlanState *child)
{
	RowBounds	bounds = {0};
	PlanState  *top = InnerIndexScan(innerPlanState(join));

	RowBoundsOfChild(&bounds, &join->js.ps, innerPlanState(join));
	bound_rows(&bounds, innerPlanState(join), top);
	if (child != innerPlanState(join))
	{
		RowBoundsBelow(&bounds, top);
		bound_rows(&bounds, child, InnerIndexScan(child));
	}
	if (bounds.may_stop)
		return 1;
	return bounds.enough == NULL ? PG_INT32_MAX :
		constant_limit(bounds.enough);
}

InnerAhead *
InnerAheadCreate(InnerShared *shared, PlanState *child, bool *infallible,
				 const char **refusal)
{
	PlanState  *scan = InnerIndexScan(child);
	NestLoopState *join = shared->join;
	EState	   *estate = join->js.ps.state;
	MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);
	InnerAhead *inner = palloc0_object(InnerAhead);
	ScanFacts	facts;

	(void) facts_of(scan, &facts);
	inner->heap = facts.heap;
	inner->index = facts.index;
	inner->index_only = facts.index_only;
	inner->ignore_killed = !TransactionStartedDuringRecovery();

	inner->most_blocks = Min(InnerRowsAsked(join, child), MAX_BLOCKS);
	inner->shared = shared;
	inner->counters = shared->counters;
	inner->vm_buffer = InvalidBuffer;
	*refusal = find_keys(inner, &facts, infallible);
	if (*refusal == NULL)
		*refusal = find_conditions(inner, child, scan, infallible);
	if (*refusal == NULL && child != innerPlanState(join))
		*refusal = find_conditions(inner, innerPlanState(join),
								   InnerIndexScan(innerPlanState(join)),
								   infallible);
	if (*refusal == NULL && facts.index->rd_rel->relam == HASH_AM_OID)
		inner->hash = HashLookupCreate(estate->es_query_cxt, facts.index,
									   facts.keys, facts.nkeys, refusal);
	else if (*refusal == NULL)
		inner->lookup = BTreeLookupCreate(estate->es_query_cxt, facts.index,
										  facts.keys, facts.nkeys,
										  facts.direction, refusal);
	if (*refusal == NULL)
	{
		if (is_memoized(join, scan))
			inner->recent = palloc0_array(uint32, RECENT_KEYS);
		inner->table_size =
			Max(4 * shared->max_rows / Min(shared->nscans, 16),
				2 * Min(shared->max_reads, shared->max_rows)) + 1;
		inner->index_pages = palloc_array(PageRead, inner->table_size);
		inner->heap_pages = palloc_array(PageRead, inner->table_size);
		for (int i = 0; i < inner->table_size; i++)
			inner->index_pages[i].block = inner->heap_pages[i].block =
				InvalidBlockNumber;
		inner->leaves_size = MAX_BLOCKS;
		inner->leaves = palloc_array(InnerRow *, inner->leaves_size);
		inner->blocks_size = MAX_BLOCKS;
		inner->blocks = palloc_array(WantedBlock, inner->blocks_size);
		inner->last_block = InvalidBlockNumber;
		inner->index_size = inner->heap_size = InvalidBlockNumber;
	}
	MemoryContextSwitchTo(old);
	return *refusal == NULL ? inner : NULL;
}

void
InnerAheadBegin(InnerAhead *inner, InnerRow *row)
{
	*row = (InnerRow) {.stage = INNER_NEW, .serial = ++inner->shared->serial};
}

void
InnerAheadClose(InnerAhead *inner)
{
	if (BufferIsValid(inner->vm_buffer))
		ReleaseBuffer(inner->vm_buffer);
	inner->vm_buffer = InvalidBuffer;
}

/* Evaluate the keys that depend on the row; false if nothing can match. */
static bool
evaluate_keys(InnerAhead *inner)
{
	ListCell   *lc;

	foreach(lc, inner->conditions)
		if (!ExecQual(lfirst(lc), inner->shared->econtext))
			return false;
	for (int i = 0; i < inner->nrow_keys; i++)
	{
		RowKey	   *row_key = &inner->row_keys[i];
		ScanKey		key = &inner->keys[row_key->key];
		bool		isnull;
		Datum		value =
			ExecEvalExpr(row_key->argument, inner->shared->econtext, &isnull);

		/* NULL matches nothing; a value in a TOAST table is not fetched here */
		if (isnull ||
			(row_key->toastable &&
			 VARATT_IS_EXTERNAL(DatumGetPointer(value))))
			return false;
		key->sk_argument = value;
		key->sk_flags &= ~SK_ISNULL;
	}
	return true;
}

/* Has a row with the same keys been looked ahead for lately? */
static bool
is_recent(InnerAhead *inner)
{
	const OuterValues *values = inner->shared->values;
	uint32		hash = 1;

	for (int i = 0; i < values->n; i++)
	{
		const OuterValue *value = &values->values[i];
		const ParamExecData *param = OuterValueNow(values, i);

		hash = hash * 31 + 1;
		if (param->isnull)
			continue;
		if (value->typlen == -1 &&
			VARATT_IS_EXTERNAL(DatumGetPointer(param->value)))
			return false;
		hash ^= datum_image_hash(param->value, value->typbyval, value->typlen);
	}
	hash |= 1;
	if (inner->recent[hash / 2 % RECENT_KEYS] == hash)
		return true;
	inner->recent[hash / 2 % RECENT_KEYS] = hash;
	return false;
}

/*
 * Set the keys to those of a row.  False if nothing can be, or has to be, read
 * for it.  Leaves the memory of the expression context in use.
 */
static bool
set_keys(InnerAhead *inner, TupleTableSlot *slot, bool is_new)
{
	OuterValues *values = inner->shared->values;
	bool		known;

	if (!OuterValuesKnow(values, inner->other_params))
		return false;
	OuterValuesSet(values, slot);
	known = evaluate_keys(inner) &&
		!(is_new && inner->recent != NULL && is_recent(inner));
	OuterValuesRestore(values);
	return known;
}

/* How many more reads may be started? */
static int
reads_allowed(InnerAhead *inner)
{
	return inner->shared->max_reads - PageReadsInFlight(inner->shared);
}

/* Does a page of the index or of the table exist?  Both may grow. */
static bool
page_exists(InnerAhead *inner, bool of_index, BlockNumber block)
{
	BlockNumber *size = of_index ? &inner->index_size : &inner->heap_size;

	if (*size == InvalidBlockNumber || block >= *size)
		*size = RelationGetNumberOfBlocks(of_index ? inner->index :
													 inner->heap);
	return block < *size;
}

/* Note that pages were read for a row. */
static void
note_reads(InnerAhead *inner, InnerRow *row, int n, bool of_heap)
{
	row->reads += n;
	if (of_heap)
	{
		row->heap_reads += n;
		inner->heap_ahead += n;
	}
}

/*
 * Start reading a page, unless that has been done: then *read tells of it.
 * again: of a page that has been read ahead before, believe that it is cached.
 * False if it cannot be started now.
 */
static bool
start_page(InnerAhead *inner, Relation rel, BlockNumber block, bool again,
		   InnerRow *row, PageRead *read)
{
	bool		is_index = rel == inner->index;
	PageRead   *table = is_index ? inner->index_pages : inner->heap_pages;
	PageRead   *known = &table[block % inner->table_size];
	CountsBefore before;

	if (known->block == block && (again || !PageReadIsDone(known)))
	{
		*read = *known;
		return true;
	}
	if (!page_exists(inner, is_index, block) ||
		(PageReadsInBackground(rel) && PageReadRoom(rel, 1) < 1))
		return false;
	before = CountsNow(rel);
	(void) PageReadStartRange(rel, block, 1, read, inner->shared);
	(void) UncountSince(rel, &before);
	*known = *read;
	if (PageReadWasRead(read))
	{
		*(is_index ? &inner->index_owed : &inner->heap_owed) += 1;
		*(is_index ? &inner->counters->leaf_blocks_read :
		  &inner->counters->heap_blocks_read) += 1;
		note_reads(inner, row, 1, !is_index);
	}
	else
		inner->counters->blocks_hit++;
	return true;
}

/*
 * Return the page that a row was waiting for, pinned.  A page that was left to
 * the kernel to prefetch is read now.
 */
static Buffer
finish_page(InnerAhead *inner, InnerRow *row)
{
	Buffer		buffer = PageReadFinish(inner->index, &row->read);

	if (!BufferIsValid(buffer) && row->read.origin == PAGE_ADVISED)
	{
		CountsBefore before = CountsNow(inner->index);

		buffer = ReadBuffer(inner->index, row->read.block);
		(void) UncountSince(inner->index, &before); /* owed already */
	}
	if (!BufferIsValid(buffer))
		inner->index_pages[row->read.block % inner->table_size].block =
			InvalidBlockNumber;
	return buffer;
}

/* Does the scan need the heap page?  Not if it is all-visible or missing. */
static bool
needs_heap_page(InnerAhead *inner, InnerRow *row, BlockNumber block)
{
	CountsBefore before;
	bool		visible;
	int			reads;

	if (!page_exists(inner, false, block))
		return false;
	if (!inner->index_only)
		return true;
	before = CountsNow(inner->heap);
	visible = VM_ALL_VISIBLE(inner->heap, block, &inner->vm_buffer);
	reads = UncountSince(inner->heap, &before);
	inner->heap_owed += reads;
	note_reads(inner, row, reads, true);
	return !visible;
}

/* Queue the leaf page that a row looks at next. */
static void
want_leaf(InnerAhead *inner, InnerRow *row)
{
	if (inner->nleaves == inner->leaves_size)
	{
		inner->leaves_size *= 2;
		inner->leaves = repalloc_array(inner->leaves, InnerRow *,
									   inner->leaves_size);
	}
	inner->leaves[inner->nleaves++] = row;
}

/* Queue the heap blocks that a leaf page has named. */
static void
want_blocks(InnerAhead *inner, InnerRow *row, const BlockNumber *blocks, int n)
{
	if (inner->nblocks + n > inner->blocks_size)
	{
		inner->blocks_size = 2 * inner->blocks_size + n;
		inner->blocks = repalloc_array(inner->blocks, WantedBlock,
									   inner->blocks_size);
	}
	for (int i = 0; i < n; i++)
		if ((inner->nblocks == 0 ||
			 inner->blocks[inner->nblocks - 1].block != blocks[i]) &&
			needs_heap_page(inner, row, blocks[i]))
			inner->blocks[inner->nblocks++] =
				(WantedBlock) {.block = blocks[i], .row = row,
							   .serial = row->serial};
}

/* Go on from a page that has been read. */
static void
visit_page(InnerAhead *inner, InnerRow *row, Buffer buffer)
{
	BlockNumber blocks[MAX_BLOCKS];
	int			n;

	row->stage = INNER_LOOK;
	if (inner->hash != NULL)
	{
		row->stage = INNER_DONE;
		n = HashLookupMatches(inner->hash, inner->keys, buffer,
							  inner->ignore_killed, blocks,
							  inner->most_blocks);
		want_blocks(inner, row, blocks, n);
		return;
	}
	if (row->place.level > 0)
	{
		if (!BTreeLookupStep(inner->lookup, inner->keys, buffer, &row->place))
			row->stage = INNER_DONE;
		return;
	}
	n = BTreeLookupMatches(inner->lookup, inner->keys, buffer, &row->place,
						   inner->ignore_killed, blocks, inner->most_blocks);
	if (n == -1)
		return;
	row->stage = INNER_DONE;
	want_blocks(inner, row, blocks, n);
}

/* Find the first page for a row whose keys are set; false if not known. */
static bool
find_first_page(InnerAhead *inner, InnerRow *row)
{
	if (inner->hash == NULL)
		return BTreeLookupRoot(inner->lookup, &row->place);
	row->place = (BTreePlace) {.level = 0};
	return HashLookupBucket(inner->hash, inner->keys, &row->place.page);
}

/* Do for a row, whose keys are set, what can be done now. */
static void
advance(InnerAhead *inner, InnerRow *row, bool wait)
{
	for (;;)
	{
		Buffer		buffer;

		CHECK_FOR_INTERRUPTS();
		if (row->stage == INNER_DONE)
			return;
		if (row->stage == INNER_LOOK)
		{
			if (++row->steps > MAX_STEPS)
			{
				row->stage = INNER_DONE;
				return;
			}
			if (row->place.level == 0)
			{
				want_leaf(inner, row);
				return;
			}
			if (!start_page(inner, inner->index, row->place.page, true, row,
							&row->read))
			{
				row->stage = INNER_DONE;
				return;
			}
			row->stage = INNER_READING;

			/* see to other rows while the page is being read */
			if (!PageReadIsDone(&row->read) ||
				row->read.origin == PAGE_ADVISED)
				return;
		}
		if (!wait && (!PageReadIsDone(&row->read) ||
					  row->read.origin == PAGE_ADVISED))
			return;
		buffer = finish_page(inner, row);
		if (BufferIsValid(buffer))
		{
			visit_page(inner, row, buffer);
			ReleaseBuffer(buffer);
		}
		else
			row->stage = INNER_LOOK;
	}
}

void
InnerAheadAdvance(InnerAhead *inner, InnerRow *row, TupleTableSlot *slot,
				  bool wait)
{
	MemoryContext old;

	if (row->stage == INNER_DONE ||
		(row->stage == INNER_READING && !wait && !PageReadIsDone(&row->read)))
		return;
	ResetExprContext(inner->shared->econtext);
	old = MemoryContextSwitchTo(inner->shared->econtext->ecxt_per_tuple_memory);
	if (!set_keys(inner, slot, row->stage == INNER_NEW))
		row->stage = INNER_DONE;
	else if (row->stage == INNER_NEW)
		row->stage = find_first_page(inner, row) ? INNER_LOOK : INNER_DONE;
	advance(inner, row, wait);
	MemoryContextSwitchTo(old);
}

/*
 * How many of the blocks wanted, from the i-th on, follow each other and can be
 * read together?
 */
static int
run_length(InnerAhead *inner, int i)
{
	const WantedBlock *wanted = &inner->blocks[i];
	int			most = Min(inner->nblocks - i, io_combine_limit);
	int			n = 1;

	if (!PageReadsInBackground(inner->heap))
		return 1;
	while (n < most && wanted[n].block == wanted[0].block + n &&
		   wanted[n].row->serial == wanted[n].serial)
		n++;
	return n == 1 ? 1 : Max(1, PageReadRoom(inner->heap, n));
}

/* Start reading adjacent heap blocks together.  Returns the number of reads. */
static int
read_run(InnerAhead *inner, const WantedBlock *wanted, int n)
{
	CountsBefore before = CountsNow(inner->heap);
	PageRead	pages[MAX_IO_COMBINE_LIMIT];
	PagesStarted started = PageReadStartRange(inner->heap, wanted[0].block, n,
											  pages, inner->shared);

	inner->heap_owed += UncountSince(inner->heap, &before);
	inner->counters->heap_blocks_read += started.blocks;
	inner->counters->blocks_hit += n - started.blocks;
	for (int i = 0; i < n; i++)
	{
		inner->heap_pages[pages[i].block % inner->table_size] = pages[i];
		note_reads(inner, wanted[i].row, PageReadWasRead(&pages[i]), true);
	}
	return started.reads;
}

/* Start reading queued heap blocks; return the number of reads. */
static int
read_blocks(InnerAhead *inner, int room)
{
	int			i = 0;
	int			n;

	for (; i < inner->nblocks && room > 0; i += n)
	{
		const WantedBlock *wanted = &inner->blocks[i];
		uint64		before = inner->counters->heap_blocks_read;
		PageRead	read;

		n = run_length(inner, i);
		if (wanted->row->serial != wanted->serial)
			n = 1;
		else if (n > 1)
			room -= read_run(inner, wanted, n);
		else if (start_page(inner, inner->heap, wanted->block, false,
							wanted->row, &read))
			room -= inner->counters->heap_blocks_read - before;
		inner->shared->blocks += inner->counters->heap_blocks_read - before;
		if (inner->counters->heap_blocks_read != before)
		{
			inner->shared->neighbours +=
				(wanted->block == inner->last_block + 1) + n - 1;
			inner->last_block = wanted[n - 1].block;
		}
	}
	inner->nblocks -= i;
	memmove(inner->blocks, &inner->blocks[i],
			inner->nblocks * sizeof(WantedBlock));
	return room;
}

void
InnerAheadRead(InnerAhead *inner)
{
	int			room = reads_allowed(inner);

	if (inner->nblocks == 0 && inner->nleaves == 0)
		return;
	if (PageReadsInBackground(inner->index))
		LookaheadEnterBatch();
	room = read_blocks(inner, room);
	inner->behind = inner->nblocks > 0;
	for (int i = 0; i < inner->nleaves; i++)
	{
		InnerRow   *row = inner->leaves[i];
		uint16		reads = row->reads;

		if (room <= 0)
		{
			row->steps--;
			inner->behind = true;
			continue;
		}
		row->stage = start_page(inner, inner->index, row->place.page, true,
								row, &row->read) ?
			INNER_READING : INNER_DONE;
		room -= row->reads - reads;
	}
	if (PageReadsInBackground(inner->index))
		LookaheadExitBatch();
	inner->nleaves = 0;
}

bool
InnerAheadIsBehind(const InnerAhead *inner)
{
	return inner->behind;
}

void
InnerAheadForget(InnerAhead *inner, InnerRow *row)
{
	inner->heap_ahead -= row->heap_reads;
	inner->heap_owed -= Min(inner->heap_owed, row->heap_reads);
	inner->counters->blocks_unused += row->reads;
	*row = (InnerRow) {.stage = INNER_DONE};
}

int
InnerAheadLeftOver(const InnerAhead *inner)
{
	return Max(0, inner->heap_owed - (inner->heap_ahead - inner->heap_arrived));
}

void
InnerAheadPass(InnerAhead *inner)
{
	int			left = InnerAheadLeftOver(inner);

	inner->counters->blocks_unused += left;
	inner->heap_owed -= left;
	inner->heap_ahead -= inner->heap_arrived;
	inner->heap_arrived = 0;
}

void
InnerAheadArrive(InnerAhead *inner, InnerRow *row)
{
	inner->heap_arrived += row->heap_reads;
	row->serial = 0;
}

void
InnerAheadSettleBegin(InnerAhead *inner)
{
	inner->index_before = CountsNow(inner->index);
	inner->heap_before = CountsNow(inner->heap);
}

void
InnerAheadSettleEnd(InnerAhead *inner)
{
	SettleHits(inner->index, &inner->index_owed, &inner->index_before);
	SettleHits(inner->heap, &inner->heap_owed, &inner->heap_before);
}
