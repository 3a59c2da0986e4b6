/*-------------------------------------------------------------------------
 *
 * plan_rows.c
 *		The next row of the plan below a ModifyTable node, fetched ahead or not.
 *
 * While the node is only watched, all that is added for a row is to compare the
 * count of blocks that this backend has read with its last value.
 *
 * ModifyTable asks for all rows, so that rows may be fetched ahead if the plan
 * is harmless (harmless.h), and if nothing else that can be noticed happens
 * between two rows: write.c looks for triggers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "compat.h"
#include "early/early_plan.h"
#include "exec/rows_wanted.h"
#include "exec/settings.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "utils/rel.h"
#include "utils/spccache.h"
#include "write/write_node.h"

/* More rows ahead than this bring nothing. */
#define MAX_ROWS 512

/* Rows that are fetched at a time, so that their reads are started together. */
#define ROWS_PER_FILL 16

/* Bytes of memory: wanted for each row ahead, and the least for all of them. */
#define BYTES_PER_ROW BLCKSZ
#define LEAST_BYTES (4 * BLCKSZ)

static inline ModifyTableState *
rows_statement(const WriteNode *node)
{
	return (ModifyTableState *) node->base.plan_state;
}

static inline ResultRelInfo *
rows_table(const WriteNode *node)
{
	return rows_statement(node)->resultRelInfo;
}

/* Does the server look for conflicting rows in an index? */
static bool
rows_conflict_in(const WriteNode *node, Relation index)
{
	const ModifyTable *plan = (const ModifyTable *) node->base.plan_state->plan;
	List	   *arbiters = rows_table(node)->ri_onConflictArbiterIndexes;

	return plan->onConflictAction != ONCONFLICT_NONE &&
		index->rd_index->indisunique &&
		(arbiters == NIL ||
		 list_member_oid(arbiters, RelationGetRelid(index)));
}

/* Begin and end to count time as spent for a row, if that is wanted. */
static inline void
rows_start_timing(WriteNode *node)
{
	node->is_timed = node->judge.timed;
	if (node->is_timed)
		INSTR_TIME_SET_CURRENT(node->started);
}

static inline void
rows_stop_timing(WriteNode *node)
{
	instr_time	now;

	if (!node->is_timed)
		return;
	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_ACCUM_DIFF(node->inside, now, node->started);
	node->is_timed = false;
}

/* Fetch a row from the child, whose time does not count. */
static TupleTableSlot *
rows_fetch(WriteNode *node, PlanState *child)
{
	TupleTableSlot *slot;

	rows_stop_timing(node);
	slot = node->fetch(child);
	rows_start_timing(node);
	return slot;
}

/*
 * Make the state of all indexes whose pages can be known early, in the query's
 * memory.  Return a refusal if there is none.
 */
static Refusal
rows_open_indexes(WriteNode *node)
{
	ResultRelInfo *table = rows_table(node);
	Refusal		refusal = REFUSED_NO_INDEXES;

	node->indexes = palloc0_array(IndexKeys *, Max(1, table->ri_NumIndices));
	for (int i = 0; i < table->ri_NumIndices; i++)
	{
		Relation	rel = table->ri_IndexRelationDescs[i];
		IndexKeys  *index;

		if (rel == NULL)
			continue;
		index = IndexKeysCreate(&node->shared, table->ri_RelationDesc, rel,
								rows_conflict_in(node, rel), &refusal);
		if (index == NULL)
			continue;
		node->indexes[node->nindexes++] = index;
	}
	return node->nindexes == 0 ? refusal : NOT_REFUSED;
}

/* Create the node's state; return the reason why it must not look ahead. */
static Refusal
rows_refusal(WriteNode *node)
{
	ResultRelInfo *table = rows_table(node);
	EState	   *estate = node->base.query->estate;
	PlanState  *child = outerPlanState(node->base.plan_state);
	int			concurrency = get_tablespace_io_concurrency(
		table->ri_RelationDesc->rd_rel->reltablespace);
	int			reads = LookaheadReadsInFlight(concurrency);
	int			rows = lookahead_max_distance >= 0 ? lookahead_max_distance :
		2 * reads;
	Size		place;
	int64		bytes;
	Refusal		refusal;

	if (concurrency == 0)
		return REFUSED_NO_CONCURRENCY;
	if (IsolationIsSerializable())
		return REFUSED_SERIALIZABLE;
	if (RowsCertain(&node->base) < PG_INT64_MAX)
		return REFUSED_NOT_ALL_ROWS;
	refusal = HarmlessPlanRefusal(child, false, false, &node->params);
	if (refusal != NOT_REFUSED)
		return refusal;
	if (node->base.query->econtext == NULL)
		node->base.query->econtext = CreateExprContext(estate);
	rows = Max(1, Min(rows, MAX_ROWS));
	bytes = AheadGrant(node->base.query, rows * BYTES_PER_ROW, LEAST_BYTES);
	place = sizeof(RowAhead) + table->ri_NumIndices * sizeof(LookupKey);
	rows = Max(1, Min(rows, bytes / 2 / place));
	node->shared = (IndexShared) {
		.lookups = {.max_keys = rows,
					.max_reads = reads,
					.nlookups = 1},
		.estate = estate,
		.econtext = node->base.query->econtext,
		.forced = lookahead_debug_force != JUDGE_MEASURES,
	};
	refusal = rows_open_indexes(node);
	if (refusal != NOT_REFUSED)
		return refusal;
	node->rows = RowsAheadCreate(estate->es_query_cxt, rows, bytes,
								 node->nindexes * sizeof(LookupKey));
	JudgeSetMaximum(&node->judge, rows, 0);
	return NOT_REFUSED;
}

/* Create the state for looking ahead; false if the node must not look ahead. */
static bool
rows_open(WriteNode *node)
{
	BufferUsage before = pgBufferUsage;
	MemoryContext old;

	if (node->rows != NULL)
		return true;
	old = MemoryContextSwitchTo(node->base.query->estate->es_query_cxt);
	node->refusal = rows_refusal(node);
	MemoryContextSwitchTo(old);

	/* do not count look-ups in the catalogs */
	pgBufferUsage.shared_blks_hit -=
		pgBufferUsage.shared_blks_hit - before.shared_blks_hit;
	pgBufferUsage.shared_blks_read -=
		pgBufferUsage.shared_blks_read - before.shared_blks_read;
	if (node->refusal != NOT_REFUSED)
	{
		JudgeForbid(&node->judge);
		return false;
	}
	node->counters.statements = 1;
	TotalsAttach(&WriteTotals);
	return true;
}

/*
 * This file runs while the child is executed, but what it reads and counts is
 * the ModifyTable node's: have EXPLAIN (BUFFERS) say so.  before: what had been
 * counted when it began.
 */
static void
rows_count_for_node(PlanState *child, const BufferUsage *before)
{
	if (child->instrument != NULL &&
		LOOKAHEAD_INSTRUMENTATION(child)->need_bufusage)
		BufferUsageAccumDiff(&LOOKAHEAD_INSTRUMENTATION(child)->bufusage_start,
							 &pgBufferUsage, before);
}

/* Do for the entries of a row what can be done now. */
static void
rows_advance(WriteNode *node, RowAhead *ahead, bool wait)
{
	LookupKey  *keys = ahead->work;

	for (int i = 0; i < node->nindexes; i++)
	{
		IndexKeys  *index = node->indexes[i];

		if (LookupIsWanted(&keys[i], wait) && IndexKeysAreActive(index))
			IndexKeysAdvance(index, &keys[i], ahead->slot, wait);
	}
}

/* Start the reads that have been asked for. */
static void
rows_start_reads(WriteNode *node)
{
	for (int i = 0; i < node->nindexes; i++)
		LookupRead(IndexKeysLookup(node->indexes[i]));
}

/*
 * Read ahead the pages of the rows ahead.  The row that is handed out next
 * needs several pages if there are several indexes, so that it takes part.
 * Reads are started for a few rows at a time: what may be in flight is to be
 * all pages of the next rows, and not one page each of many.
 */
static void
rows_read_ahead(WriteNode *node, PlanState *child)
{
	int			size = RowsAheadSize(node->rows);
	int			some = Max(1, node->shared.lookups.max_reads / node->nindexes);
	BufferUsage before = pgBufferUsage;

	for (int pass = 0; pass < 2; pass++)
	{
		for (int i = node->nindexes > 1 ? 0 : 1; i < size; i++)
		{
			rows_advance(node, RowsAheadAt(node->rows, i),
						 pass == 0 && i > 0 && i <= size / 2);
			if (i % some == 0)
				rows_start_reads(node);
		}
		rows_start_reads(node);
	}
	rows_count_for_node(child, &before);
}

/* Are reads wanted that had to wait until others end, and have some ended? */
static bool
rows_may_go_on(WriteNode *node)
{
	bool		behind = false;

	for (int i = 0; i < node->nindexes; i++)
		behind |= LookupIsBehind(IndexKeysLookup(node->indexes[i]));
	return behind && PageReadsInFlight(&node->shared.lookups) <=
		node->shared.lookups.max_reads / 4 * 3;
}

/* Is there so much to fetch, or to have read, that it pays to begin? */
static bool
rows_is_time_to_fill(WriteNode *node, int size, int wanted)
{
	if (node->judge.mode == JUDGE_AHEAD && !node->child_ended)
	{
		if (size <= wanted - Min(wanted / 8, ROWS_PER_FILL))
			return true;
	}

	/* at the end, go on reading for the rows that are left */
	else if (node->rows_of_ring % ROWS_PER_FILL == 0)
		return true;
	return rows_may_go_on(node);
}

/* Fetch rows ahead, and one in any case; none if look-ahead is ending. */
static void
rows_fill(WriteNode *node, PlanState *child)
{
	int			size = RowsAheadSize(node->rows);
	int			wanted = 0;

	if (node->judge.mode == JUDGE_AHEAD &&
		ParamsAreKnown(node->base.query->estate, node->params))
		wanted = node->judge.distance;
	if (size > 0 && !rows_is_time_to_fill(node, size, wanted))
		return;
	while (node->judge.mode == JUDGE_AHEAD && !node->child_ended &&
		   (size = RowsAheadSize(node->rows)) < wanted + 1 &&
		   RowsAheadHasRoom(node->rows))
	{
		TupleTableSlot *slot;
		RowAhead   *row;

		CHECK_FOR_INTERRUPTS();
		node->base.rows_held = size;
		slot = rows_fetch(node, child);
		if (TupIsNull(slot))
		{
			node->child_ended = true;
			break;
		}
		row = RowsAheadAdd(node->rows, slot);
		for (int i = 0; i < node->nindexes; i++)
			LookupBegin(IndexKeysLookup(node->indexes[i]),
						&((LookupKey *) row->work)[i]);
		node->counters.rows += size > 0;
	}
	rows_read_ahead(node, child);
	size = RowsAheadSize(node->rows);
	if (size == 1 && wanted > 0 && !RowsAheadHasRoom(node->rows))
		JudgeNoRoom(&node->judge);
	if (size > 1)
		node->counters.max_rows =
			Max(node->counters.max_rows, (uint64) size - 1);
}

/*
 * The next row in AHEAD or ENDING.  *known is false if there is none ahead any
 * more, and none is to be fetched ahead.
 */
static TupleTableSlot *
rows_next_of_ring(WriteNode *node, PlanState *child, bool *known)
{
	RowAhead   *row;

	*known = true;
	rows_fill(node, child);
	if (RowsAheadSize(node->rows) == 0)
	{
		*known = node->child_ended;
		node->base.rows_held = 0;
		if (*known)
			RowsAheadRelease(node->rows);
		return NULL;
	}
	row = RowsAheadNext(node->rows);
	node->base.rows_held = RowsAheadSize(node->rows);
	for (int i = 0; i < node->nindexes; i++)
	{
		Lookup	   *lookup = IndexKeysLookup(node->indexes[i]);

		LookupArrive(lookup, &((LookupKey *) row->work)[i]);
		LookupCountBegin(lookup);
	}
	node->arrived = row;
	node->rows_of_ring++;
	node->size_sum += RowsAheadSize(node->rows);
	return row->slot;
}

/* The server has written the row that was handed out of the ring. */
static void
rows_account(WriteNode *node, PlanState *child)
{
	BufferUsage before = pgBufferUsage;

	for (int i = 0; i < node->nindexes; i++)
	{
		Lookup	   *lookup = IndexKeysLookup(node->indexes[i]);

		LookupCountEnd(lookup);
		LookupPass(lookup);
	}
	node->arrived = NULL;
	rows_count_for_node(child, &before);
}

/*
 * The blocks that have been read of the indexes, as the statistics count; -1 if
 * that is not known.
 */
static int64
rows_misses(const WriteNode *node)
{
	ResultRelInfo *table = rows_table(node);
	int64		sum = 0;

	for (int i = 0; i < table->ri_NumIndices; i++)
	{
		int64		misses;

		if (table->ri_IndexRelationDescs[i] == NULL)
			continue;
		misses = IndexMisses(table->ri_IndexRelationDescs[i]);
		if (misses < 0)
			return -1;
		sum += misses;
	}
	return sum;
}

/* Have pages of indexes been read since a row was handed out? */
static bool
rows_were_read_for(WriteNode *node)
{
	int64		misses = rows_misses(node);
	bool		was_read = misses < 0 ? *node->reads != node->reads_seen :
		misses != node->misses_seen;

	for (int i = 0; i < node->nindexes; i++)
		(void) IndexKeysWereRead(node->indexes[i]);
	return was_read;
}

/* Tell the judge what was read for the row that was written last. */
static void
rows_tell_judge(WriteNode *node, PlanState *child)
{
	Judge	   *judge = &node->judge;
	int64		reads = *node->reads - node->reads_seen;
	bool		was_read = rows_were_read_for(node);
	bool		in_trial = judge->mode == JUDGE_TRIAL;

	if (judge->mode == JUDGE_WATCH)
		JudgeReadSeen(judge,
					  JudgeRecall(JUDGE_WRITES,
								  RelationGetRelid(
									  rows_table(node)->ri_RelationDesc),
								  effective_io_concurrency));
	else
		JudgeUnit(judge, was_read ? (int) Max(1, reads) : 0,
				  INSTR_TIME_GET_NANOSEC(node->inside) / 1000.0,
				  in_trial || node->rows == NULL ? 0 :
				  RowsAheadSize(node->rows),
				  in_trial && was_read ?
				  (int64) Min(MAX_ROWS, child->plan->plan_rows) : 0,
				  node->base.query->reads_are_slow);
	INSTR_TIME_SET_ZERO(node->inside);
	if (in_trial && judge->mode == JUDGE_AHEAD)
		node->base.query->reads_are_slow = true;
}

/* Return the next row, where the judge has something to see or to do. */
static pg_noinline TupleTableSlot *
rows_next(WriteNode *node, PlanState *child)
{
	TupleTableSlot *slot = NULL;
	bool		known = false;

	rows_stop_timing(node);
	if (node->arrived != NULL)
		rows_account(node, child);
	if (node->has_written)
		rows_tell_judge(node, child);
	rows_start_timing(node);

	/* the server opens the indexes when it has got the first row */
	if (node->judge.mode >= JUDGE_AHEAD && node->has_written &&
		rows_open(node))
	{
		slot = rows_next_of_ring(node, child, &known);
		if (!known)
			JudgeEntries(&node->judge, 0, 0);
	}
	if (!known)
		slot = rows_fetch(node, child);
	node->has_written = true;
	node->reads_seen = *node->reads;
	node->misses_seen = rows_misses(node);
	return slot;
}

TupleTableSlot *
WriteNextRow(PlanState *child)
{
	WriteNode  *node = (WriteNode *) AheadNodeBy(child, AHEAD_AS_OUTER);
	TupleTableSlot *slot;

	if (unlikely(node->judge.mode != JUDGE_WATCH ||
				 *node->reads != node->reads_seen))
		return rows_next(node, child);
	slot = node->fetch(child);
	node->reads_seen = *node->reads;
	node->has_written = true;
	return slot;
}

WriteCounters
WriteTell(const WriteNode *node)
{
	WriteCounters counters = node->counters;
	const LookupCounters *pages = &node->shared.lookups.counters;

	counters.index_blocks_read = pages->leaf_blocks_read;
	counters.heap_blocks_read = pages->heap_blocks_read;
	counters.blocks_hit = pages->blocks_hit;
	counters.blocks_unused = pages->blocks_unused;
	for (int i = 0; i < node->nindexes; i++)
		counters.blocks_unused +=
			LookupLeftOver(IndexKeysLookup(node->indexes[i]));
	return counters;
}
