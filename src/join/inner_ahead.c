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
#include "join/inner_ahead.h"
#include "join/safe_plan.h"
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
	bool		keys_may_fail;	/* unless the scan has computed them before */
	const bool *keys_computed;	/* has it? */
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
	uint32		serial;			/* serial of the row that was queued last */
	int			nblocks;
	int			blocks_size;
	WantedBlock *blocks;

	bool		behind;			/* wanted reads wait for others to end */
	BlockNumber index_size;		/* blocks when last looked up, or Invalid */
	BlockNumber heap_size;
	Buffer		vm_buffer;		/* visibility map page, pinned while open */
	BlockNumber last_block;		/* heap block that was read ahead last */
	int			judged_blocks;
	int			neighbours;

	int			index_owed;		/* reads owed; see uncount.h */
	int			heap_owed;
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
	const bool *keys_computed;
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
		facts->keys_computed = &state->iss_RuntimeKeysReady;
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
		facts->keys_computed = &state->ioss_RuntimeKeysReady;
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
		facts->keys_computed = &state->biss_RuntimeKeysReady;
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

/* Find the keys whose arguments depend on parameters; return a refusal. */
static const char *
find_keys(InnerAhead *inner, const ScanFacts *facts, bool settings_stay)
{
	inner->nkeys = facts->nkeys;
	inner->keys_computed = facts->keys_computed;
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
		if (!SafeExpression((Node *) info->key_expr->expr, settings_stay,
							&inner->other_params, &inner->keys_may_fail))
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
find_conditions(InnerAhead *inner, PlanState *node, const PlanState *below)
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
		if (!SafeExpression(((Result *) node->plan)->resconstantqual,
							inner->shared->settings_stay,
							&inner->other_params, &inner->keys_may_fail))
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

InnerAhead *
InnerAheadCreate(InnerShared *shared, PlanState *child, bool is_child,
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

	/* one block is enough where the first match ends the scan */
	inner->most_blocks =
		join->js.single_match && is_child ? 1 : MAX_BLOCKS;
	inner->shared = shared;
	inner->counters = shared->counters;
	*refusal = find_keys(inner, &facts, shared->settings_stay);
	if (*refusal == NULL)
		*refusal = find_conditions(inner, child, scan);
	if (*refusal == NULL && child != innerPlanState(join))
		*refusal = find_conditions(inner, innerPlanState(join),
								   InnerIndexScan(innerPlanState(join)));
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
	*row = (InnerRow) {.stage = INNER_NEW, .serial = ++inner->serial};
}

void
InnerAheadOpen(InnerAhead *inner)
{
	inner->vm_buffer = InvalidBuffer;
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

	if (!OuterValuesKnow(values, inner->other_params) ||
		(inner->keys_may_fail && !*inner->keys_computed))
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
		row->reads++;
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
needs_heap_page(InnerAhead *inner, BlockNumber block)
{
	CountsBefore before;
	bool		visible;

	if (!page_exists(inner, false, block))
		return false;
	if (!inner->index_only)
		return true;
	before = CountsNow(inner->heap);
	visible = VM_ALL_VISIBLE(inner->heap, block, &inner->vm_buffer);
	inner->heap_owed += UncountSince(inner->heap, &before);
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
			needs_heap_page(inner, blocks[i]))
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
		wanted[i].row->reads += PageReadWasRead(&pages[i]);
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
		inner->judged_blocks += inner->counters->heap_blocks_read - before;
		if (inner->counters->heap_blocks_read != before)
		{
			inner->neighbours +=
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
InnerAheadNeighbours(InnerAhead *inner, int *blocks, int *neighbours)
{
	bool		kernel = LookaheadAdviceIsUseful();

	*blocks = kernel ? inner->judged_blocks : 0;
	*neighbours = kernel ? inner->neighbours : 0;
	inner->judged_blocks = inner->neighbours = 0;
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
