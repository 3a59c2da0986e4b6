/*-------------------------------------------------------------------------
 *
 * next_outer.c
 *		The next outer row of a nested loop, or of a node with subplans, fetched
 *		ahead or not.
 *
 * While the join is only watched, all that is added for an outer row is to
 * compare the count of blocks that this backend has read with its last value.
 *
 * Where rows are fetched ahead, the judge says how many; a LIMIT or a FETCH,
 * the number of rows handed out so far, and memory bound that.
 *
 * One question comes first: will the query certainly ask for the row?  Then the
 * outer side need only be harmless (harmless.h).  If it may be left before, the
 * row is fetched only if that cannot fail (infallible.c) and needs no search.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "early/early_plan.h"
#include "exec/ahead_node.h"
#include "exec/judge_timing.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "join/join.h"
#include "join/join_node.h"
#include "miscadmin.h"
#include "read/uncount.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/* The most rows ahead. */
#define MAX_ROWS 4096

/* The most rows ahead before the first one has been handed out. */
#define FIRST_ROWS 2

/* The most rows ahead for each one handed out, if all are certain. */
#define CERTAIN_PART 8

/*
 * Bounds of rows that may never be asked for: a quarter as many may be ahead as
 * have been handed out, and an index scan looks at 15 entries to find one.
 */
#define UNCERTAIN_PART 4
#define UNCERTAIN_STEPS 16

/* Where many rows are ahead, this part of them is fetched at a time. */
#define FILL_PART 32

/* Bytes of memory: wanted for each row ahead, and the least for all of them. */
#define BYTES_PER_ROW BLCKSZ
#define LEAST_BYTES (4 * BLCKSZ)

/*
 * What is kept for each row ahead besides, and stays when it is handed out; and
 * what is kept where it has reads, or where several scans are looked ahead in.
 */
#define BYTES_PER_PLACE 512
#define BYTES_PER_PLACE_SEVERAL 2048

/* The nested loop; NULL if it is another node, with subplans. */
static inline const JoinState *
outer_loop_of(const JoinNode *node)
{
	return IsA(node->base.plan_state, NestLoopState) ?
		&((NestLoopState *) node->base.plan_state)->js : NULL;
}

/* Does the node return one row at most for each outer row? */
static bool
outer_is_single(const JoinNode *node)
{
	const JoinState *join = outer_loop_of(node);

	return join == NULL || join->single_match || join->jointype == JOIN_ANTI;
}

/* Is the outer row what a scan fetches, with nothing computed of it? */
static inline bool
outer_is_scanned(const JoinNode *node)
{
	return node->source == node->base.plan_state;
}

/* The number of rows ahead. */
static inline int
outer_rows_ahead(const JoinNode *node)
{
	return node->rows == NULL ? 0 : RowsAheadSize(node->rows);
}

/* May the node be asked for rows that it has returned before? */
static bool
outer_may_turn(const JoinNode *node)
{
	return node->base.bounds.restores ||
		(node->base.bounds.portal != PORTAL_COUNTS_NOT &&
		 (node->base.query->estate->es_top_eflags & EXEC_FLAG_BACKWARD) != 0);
}

/*
 * May WHERE CURRENT OF ask where the source stands?  It finds a scan below a
 * Result node or a subquery's node, but none below a sort.
 */
static bool
outer_may_be_current(const JoinNode *node)
{
	return (IsA(node->base.plan_state, ResultState) ||
			IsA(node->base.plan_state, SubqueryScanState)) &&
		node->base.bounds.portal != PORTAL_COUNTS_NOT &&
		!IsA(node->source, SortState);
}

/*
 * May a function of the query itself ask that now?  While the first rows of a
 * cursor are fetched, that is an error.
 */
static bool
outer_is_current(const JoinNode *node)
{
	return outer_may_be_current(node) &&
		node->base.query->estate->es_total_processed > 0 &&
		!SettingsStay(node->base.query);
}

/*
 * How many outer rows after the next one will certainly be asked for, or up to
 * the last one?  A join that returns one row at most for each of them needs as
 * many as it is to return, at least.
 */
static int64
outer_rows_certain(const JoinNode *node)
{
	int64		certain = RowsCertain(&node->base);

	if (certain == PG_INT64_MAX)
		return MAX_ROWS;
	return outer_is_single(node) ? Max(0, certain - 1) : 0;
}

/* Take memory for rows ahead; return how many of them may need a read. */
static int
outer_take_memory(JoinNode *node)
{
	int			place = node->several ? BYTES_PER_PLACE_SEVERAL :
		BYTES_PER_PLACE;
	int			rows = JoinMaxRows(node);

	node->base.query->memory -= node->granted;
	node->granted = AheadGrant(node->base.query,
							   rows * BYTES_PER_ROW + (MAX_ROWS - rows) * place,
							   LEAST_BYTES);
	node->max_rows = Min(MAX_ROWS, node->granted / place);
	return Min(rows, node->granted / BYTES_PER_PLACE_SEVERAL);
}

/*
 * Leave it to other nodes of the query, such as joins of other partitions, but
 * for what the inner side has until the query ends.
 */
static void
outer_give_memory_back(JoinNode *node)
{
	int64		kept = node->inner == NULL ? 0 : InnerSideSize(node->inner);

	kept = Min(kept, node->granted);
	node->base.query->memory -= node->granted - kept;
	node->granted = kept;
}

/* Create the inner side; return the reason why the join must not look ahead. */
static Refusal
outer_refusal_of(JoinNode *node)
{
	Refusal		refusal = JoinLookUpRefusal(node->relations[0]);
	int			rows;

	if (refusal != NOT_REFUSED)
		return refusal;
	if (outer_loop_of(node) == NULL && outer_may_turn(node))
		return REFUSED_BACKWARD;
	refusal = HarmlessPlanRefusal(node->source, outer_is_scanned(node),
								  SettingsStay(node->base.query),
								  &node->params);
	if (refusal != NOT_REFUSED)
		return refusal;
	node->infallible =
		ReturnsInfallibly(node->source, outer_is_scanned(node)) &&
		!outer_may_be_current(node);
	if (!node->infallible &&
		(node->base.bounds.may_stop ||
		 (!outer_is_single(node) && outer_rows_certain(node) == 0)))
		return REFUSED_ROWS_UNCERTAIN;
	rows = outer_take_memory(node);
	if (!JoinOpenInner(node, rows, node->infallible))
	{
		outer_give_memory_back(node);
		return node->inner_refusal;
	}
	node->infallible &= InnerSideIsInfallible(node->inner);
	if (node->infallible && !outer_is_scanned(node))
		node->read = ColumnsRead(node->source->plan);
	JudgeSetMaximum(&node->judge, rows, 0);
	return NOT_REFUSED;
}

/* Find out whether the join may look ahead; false if it must not. */
static bool
outer_open(JoinNode *node)
{
	BufferUsage before = pgBufferUsage;

	JoinUntimeInner(node);		/* whose function it is, is asked */
	node->refusal = outer_refusal_of(node);

	UncountCatalogs(&before);
	node->opened = node->refusal == NOT_REFUSED;
	if (!node->opened)
		JudgeForbid(&node->judge);
	return node->opened;
}

/* Create the ring of rows, if there is none; false if there must be none. */
static bool
outer_open_rows(JoinNode *node)
{
	if (node->rows != NULL)
		return true;
	if (node->opened)
		(void) outer_take_memory(node);
	else if (!outer_open(node))
		return false;
	node->rows = RowsAheadCreate(node->base.query->estate->es_query_cxt,
								 node->max_rows, node->granted,
								 InnerSidePartsSize(node->inner));
	return true;
}

/* The outer side has ended, and all its rows have been handed out. */
static void
outer_close_rows(JoinNode *node)
{
	InnerSidePass(node->inner); /* of the last row */
	InnerSideRest(node->inner);
	RowsAheadDestroy(node->rows);
	node->rows = NULL;
	outer_give_memory_back(node);
}

/* Called when the join is begun again. */
static void
outer_note_rescan(Datum arg)
{
	JoinNode   *node = (JoinNode *) DatumGetPointer(arg);

	node->watching = false;
	node->begun_again = true;
}

JoinCounters
JoinNodeCounters(const JoinNode *node)
{
	JoinCounters counters = node->counters;
	uint64	   *blocks_unused = &counters.pages.blocks_unused;
	int			unused;

	if (node->inner == NULL)
		return counters;
	counters.pages = *InnerSideCounters(node->inner);

	/* nobody will ask for the rows that are still ahead */
	unused = outer_rows_ahead(node);
	counters.rows_unused += unused;
	for (int i = 0; i < unused; i++)
		*blocks_unused += InnerSideReads(RowsAheadAt(node->rows, i)->work);
	*blocks_unused += InnerSideLeftOver(node->inner);
	if (node->first_row == FIRST_ROW_LOOKED_UP)
		*blocks_unused += InnerSideReads(node->first_parts);
	return counters;
}

/* Let go of the rows ahead, which will not be asked for. */
static void
outer_forget_rows(JoinNode *node)
{
	int			unused = RowsAheadSize(node->rows);

	node->counters.rows_unused += unused;
	node->left_early |= unused > 0 || node->outer_ended;
	InnerSidePass(node->inner);
	for (int i = 0; i < unused; i++)
		InnerSideForget(node->inner, RowsAheadAt(node->rows, i)->work);
	RowsAheadForget(node->rows);
	node->base.rows_held = node->ndone = node->idle = 0;
	JudgeBegunAgain(&node->judge, node->handed_out, unused);
	node->outer_ended = false;
}

/*
 * How many outer rows will the query need at most?  That is computed from the
 * number of rows that the join is to return, and from how many outer rows each
 * of them took so far.
 */
static int64
outer_rows_needed(JoinNode *node)
{
	int64		wanted = RowsWanted(&node->base);
	int64		returned;

	if (wanted > MAX_ROWS)
		return MAX_ROWS;
	returned = Max(1, node->wanted_first - wanted);
	return Max(0, wanted * (int64) Max(1, node->handed_out) / returned - 1);
}

/* How many rows has the join returned for the outer row handed out last? */
static void
outer_note_returned(JoinNode *node)
{
	const JoinState *join = outer_loop_of(node);
	int64		wanted = RowsWanted(&node->base);

	if (join == NULL || join->single_match)
		node->most_returned = 1;
	else if (node->handed_out > 0)
		node->most_returned =
			Max(node->most_returned, node->wanted_last - wanted);
	node->wanted_last = wanted;
}

/*
 * How many more outer rows are likely to be asked for, though that is not
 * certain?  Where the rows that the join has yet to return are bounded, their
 * number is divided by the most rows that it has returned for one outer row so
 * far; before it has returned any, no outer row is likely.  Else the estimate
 * of the planner counts, and what has been asked for; no outer row is likely if
 * the join has been left with rows ahead and begun again.
 */
static int64
outer_rows_likely(JoinNode *node)
{
	int64		wanted;

	if (!node->infallible)
		return 0;
	wanted = RowsWanted(&node->base);
	if (wanted < PG_INT64_MAX)
		return node->most_returned == 0 ? 0 :
			wanted / node->most_returned - 1;
	if (node->left_early)
		return 0;
	return (int64) Min((double) (node->handed_out / UNCERTAIN_PART),
					   node->source->plan->plan_rows - 1 - node->handed_out);
}

/*
 * Fetch an outer row that is wanted ahead, if it will certainly be asked for or
 * if that needs no search.  Sets *more to false if there is none to be had, for
 * now.
 */
static TupleTableSlot *
outer_fetch_ahead(JoinNode *node, bool certain, bool *more)
{
	PlanState  *outer = node->source;
	bool		has_stopped;
	TupleTableSlot *slot;

	*more = certain ||
		(!node->search_stopped && NextRowIsKnown(outer, node->read));
	if (*more)
		return node->fetch(outer);
	if (node->search_stopped ||
		(!IsA(outer, IndexScanState) && !IsA(outer, IndexOnlyScanState)))
		return NULL;
	slot = AheadFetchNear(outer, node->fetch, UNCERTAIN_STEPS, node->read,
						  &has_stopped);
	node->search_stopped = has_stopped;
	*more = !has_stopped;
	return slot;
}

/*
 * How many rows are to be ahead of the one that is handed out next?  Those for
 * which nothing had to be read do not count.
 */
static int
outer_rows_wanted_ahead(JoinNode *node)
{
	int64		rows = node->judge.distance;
	int			part =
		RowsCertain(&node->base) == PG_INT64_MAX ? CERTAIN_PART : 1;

	if (node->judge.mode != JUDGE_AHEAD || outer_is_current(node) ||
		!ParamsAreKnown(node->base.query->estate, node->params))
		return 0;
	rows = Min(rows + node->idle, node->max_rows);
	rows = Min(rows, part * (int64) node->handed_out + FIRST_ROWS);
	rows = Min(rows, Max(outer_rows_certain(node), outer_rows_likely(node)));
	return (int) Min(rows, outer_rows_needed(node));
}

/*
 * Read ahead the pages of the rows ahead, from one on.  more: others will be
 * fetched soon.
 */
static void
outer_read_ahead(JoinNode *node, int first, bool more)
{
	int			size = RowsAheadSize(node->rows);

	for (int pass = 0; pass < 2; pass++)
	{
		/* row 0 is handed out next, and reads its pages by itself */
		for (int i = Max(1, first); i < size; i++)
		{
			RowAhead   *row = RowsAheadAt(node->rows, i);

			InnerSideAdvance(node->inner, row->work, row->slot,
							 pass == 0 && i <= size / 2);
		}
		InnerSideRead(node->inner, more);
	}
}

/* Note which rows are done, and for which, from one on, nothing is read. */
static void
outer_note_done(JoinNode *node, int first)
{
	int			size = RowsAheadSize(node->rows);

	for (int i = first; i < size; i++)
	{
		InnerParts *parts = RowsAheadAt(node->rows, i)->work;
		bool		was_idle = parts->idle;

		if ((InnerSideIsDone(parts) || i == 0) && i == node->ndone)
			node->ndone++;
		node->idle += parts->idle - was_idle;
	}
}

/*
 * Is there so much to fetch, or to have read, that it pays to begin?  At the
 * end, go on reading for the rows that are left.
 */
static bool
outer_is_time_to_fill(JoinNode *node, int size)
{
	int			wanted;
	int			step;

	if (InnerSideMayGoOn(node->inner))
		return true;
	if (node->rows_of_ring < node->fill_at)
		return false;
	wanted = outer_rows_wanted_ahead(node);
	step = Min(Max(0, wanted - node->idle) / 8, ROWS_PER_FILL);
	if (node->judge.mode != JUDGE_ENDING && size <= wanted - step)
		return true;
	return node->rows_of_ring % ROWS_PER_FILL == 0 &&
		(node->ndone < size || InnerSideHolds(node->inner));
}

/*
 * Fetch this number of rows ahead, and one in any case.  False if no more are
 * to be had, for now.  The time of the outer side is not counted, since the
 * outer side takes it without look-ahead, too.
 */
static bool
outer_fetch_rows(JoinNode *node, int wanted, instr_time *start)
{
	int64		certain = outer_rows_certain(node);
	int			size;

	while ((size = RowsAheadSize(node->rows)) < wanted + 1)
	{
		TupleTableSlot *slot;
		RowAhead   *row;
		bool		more;

		CHECK_FOR_INTERRUPTS();
		if (node->outer_ended || !RowsAheadHasRoom(node->rows))
			return false;
		if (size == 0)
			node->search_stopped = false;	/* the server searches itself */
		node->base.rows_held = size;
		JudgeStopTiming(&node->inside, *start);
		slot = outer_fetch_ahead(node, size <= certain, &more);
		*start = JudgeStartTiming(&node->judge);
		if (!more)
			return false;
		if (TupIsNull(slot))
		{
			node->outer_ended = true;
			return false;
		}
		row = RowsAheadAdd(node->rows, slot);
		if (!ChainTakesRow(node, row->work))
			InnerSideBegin(node->inner, row->work);
		node->counters.rows += size > 0;
	}
	return true;
}

/*
 * Fetch rows ahead, and one in any case; none if look-ahead is ending.  Where
 * rows turn out to need no read, others are fetched in their place, until as
 * many reads are in flight as may be.
 */
static void
outer_fill(JoinNode *node)
{
	int			size = RowsAheadSize(node->rows);
	int			first = node->ndone;
	int			wanted;
	bool		more;
	instr_time	start;

	if (size > 0 && !outer_is_time_to_fill(node, size))
		return;
	wanted = outer_rows_wanted_ahead(node);
	start = JudgeStartTiming(&node->judge);
	do
	{
		more = node->judge.mode != JUDGE_ENDING &&
			outer_fetch_rows(node, wanted, &start);
		outer_read_ahead(node, first, more);
		outer_note_done(node, first);
		first = size = RowsAheadSize(node->rows);
		wanted = outer_rows_wanted_ahead(node);
	} while (more && size < wanted + 1 && !InnerSideIsBehind(node->inner));
	node->base.rows_held = Max(0, size - 1);
	node->fill_at = node->rows_of_ring + size / FILL_PART;
	if (size == 1 && wanted > 0 && !RowsAheadHasRoom(node->rows))
		JudgeNoRoom(&node->judge);
	if (size > 1)
		node->counters.max_rows =
			Max(node->counters.max_rows, (uint64) size - 1);
	JudgeStopTiming(&node->inside, start);
}

/*
 * The next row in AHEAD or ENDING.  *known is false if there is none ahead any
 * more, and none is to be fetched ahead.
 */
static TupleTableSlot *
outer_next_of_ring(JoinNode *node, bool *known)
{
	RowAhead   *row;

	*known = true;
	if (node->begun_again)
	{
		outer_forget_rows(node);
		node->begun_again = node->search_stopped = false;
		node->handed_out = 0;
	}
	if (!node->watching)
	{
		RegisterExprContextCallback(node->base.plan_state->ps_ExprContext,
									outer_note_rescan, PointerGetDatum(node));
		node->watching = true;
	}
	if (node->judge.mode >= JUDGE_AHEAD)
	{
		JoinExecuteInner(node, true);
		outer_fill(node);
	}
	if (RowsAheadSize(node->rows) == 0)
	{
		*known = node->outer_ended;
		node->outer_ended = false;
		if (*known)
			outer_close_rows(node);
		return NULL;
	}
	row = RowsAheadNext(node->rows);
	node->ndone -= node->ndone > 0;
	node->idle -= ((InnerParts *) row->work)->idle;
	node->base.rows_held = RowsAheadSize(node->rows);
	InnerSidePass(node->inner);
	InnerSideArrive(node->inner, row->work);
	node->rows_of_ring++;
	node->size_sum += RowsAheadSize(node->rows);
	return row->slot;
}

/*
 * The blocks that the inner side has read, as the statistics of its tables and
 * indexes count; -1 if that is not known.  Several scans are too many to ask
 * each of them: it is known while they are executed by us.
 */
static int64
outer_inner_misses(const JoinNode *node)
{
	int64		misses = MissesOf(node->relations, 2);

	if (!node->several || misses < 0)
		return misses;
	return node->judge.mode >= JUDGE_AHEAD && node->inner != NULL ?
		InnerSideMisses(node->inner) : -1;
}

/* Tell the judge what the inner side has read for the last row. */
static void
outer_count_row(JoinNode *node)
{
	Judge	   *judge = &node->judge;
	int64		reads = *node->reads - node->reads_seen;
	int64		misses = outer_inner_misses(node);
	bool		has_read = reads > 0;
	bool		in_trial = judge->mode == JUDGE_TRIAL;

	if (misses >= 0 && node->misses_seen >= 0)
	{
		misses -= node->misses_seen;
		if (judge->per_read)
			reads = Max(misses, 0);
		else
			reads = misses == 0 ? 0 : Max(reads, 1);
	}
	if (judge->mode != JUDGE_WATCH)
		JudgeTimedUnit(judge, reads, &node->inside,
					   in_trial ? 0 : outer_rows_ahead(node) - node->idle,
					   in_trial && reads > 0 ? outer_rows_needed(node) : 0,
					   &node->base.query->reads_are_slow);
	else if (has_read)
		JudgeReadSeen(judge, RelationGetRelid(node->relations[0]),
					  effective_io_concurrency);
	INSTR_TIME_SET_ZERO(node->inside);
}

/* Return the next row, where the judge has something to see or to do. */
static pg_noinline TupleTableSlot *
outer_next_row(JoinNode *node)
{
	TupleTableSlot *slot = NULL;
	bool		known = false;

	if (node->handed_out > 0)
		outer_count_row(node);
	if (node->above != NULL || node->below != NULL)
		ChainBeforeRow(node);
	if (RowsCertain(&node->base) < PG_INT64_MAX)
		outer_note_returned(node);
	if (node->judge.mode >= JUDGE_AHEAD && outer_open_rows(node))
	{
		slot = outer_next_of_ring(node, &known);
		if (!known)
		{
			JudgeEntries(&node->judge, 0, 0);
			JoinExecuteInner(node, node->judge.mode == JUDGE_AHEAD);
		}
	}
	JoinTimeInner(node);
	if (!known)
		slot = node->fetch(node->source);
	if (node->chain != NULL)
		ChainAfterRow(node, slot);
	if (node->handed_out++ == 0)
		node->wanted_first = RowsWanted(&node->base);
	node->reads_seen = *node->reads;
	node->misses_seen = outer_inner_misses(node);
	node->is_watched = node->chain != NULL && node->chain->judge != NULL;
	return slot;
}

TupleTableSlot *
JoinNextRow(JoinNode *node)
{
	TupleTableSlot *slot;

	if (unlikely(node->judge.mode != JUDGE_WATCH || node->is_watched ||
				 *node->reads != node->reads_seen))
		return outer_next_row(node);
	slot = node->fetch(node->source);
	node->reads_seen = *node->reads;
	return slot;
}

TupleTableSlot *
JoinNextOuter(PlanState *outer)
{
	return JoinNextRow((JoinNode *) AheadNodeBy(outer, AHEAD_AS_OUTER));
}

bool
JoinRowAhead(PlanState *nested_loop, uint64 *number, TupleTableSlot **outer,
			 ItemPointer match)
{
	JoinNode   *node = (JoinNode *) AheadNodeFind(nested_loop);
	RowAhead   *row;

	if (node == NULL || node->rows == NULL || node->several)
		return false;
	*number = Max(*number, node->rows_of_ring);
	if (*number - node->rows_of_ring >= (uint64) RowsAheadSize(node->rows))
		return false;
	row = RowsAheadAt(node->rows, (int) (*number - node->rows_of_ring));
	*outer = row->slot;
	return InnerSideMatch(row->work, match);
}

void
JoinEnd(AheadNode *base)
{
	JoinNode   *node = (JoinNode *) base;
	JoinCounters counters;

	ChainEnd(node);
	if (node->inner == NULL)
		return;
	counters = JoinNodeCounters(node);
	TotalsAdd(&JoinTotals, &counters);
}
