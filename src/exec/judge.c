/*-------------------------------------------------------------------------
 *
 * judge.c
 *		When a node looks ahead, and how far.
 *
 * The judge measures what a unit of work (see JudgeKind) costs inside the node
 * with look-ahead, and what it costs without, in blocks that alternate, and
 * keeps what is cheaper.  A node is always in one of four modes, and begins in
 * WATCH (if it is forced, in AHEAD, where it stays).  All transitions, which
 * may happen between any two units:
 *
 *	from	to		when
 *	WATCH	TRIAL	something was read, and no rest is left
 *	TRIAL	WATCH	some units in a row needed no read; or reads are fast; or
 *					look-ahead was found dearer, and it is not time to ask again
 *	TRIAL	AHEAD	enough units were slow, and much is left to be won; or a
 *					block without look-ahead has been measured, and one with it
 *					is due, or was cheaper
 *	AHEAD	ENDING	hardly a unit needed a read; or many entries needed no unit;
 *					or a block with look-ahead has been measured, and one
 *					without is due, or was cheaper; or there is no room; or
 *					processors are busy
 *	ENDING	TRIAL	nothing is ahead any more, and a block without is due
 *	ENDING	WATCH	nothing is ahead any more
 *	AHEAD,	WATCH	the node was begun again, and look-ahead was useless
 *	ENDING
 *	any		WATCH	look-ahead is forbidden
 *
 * The question is asked as follows.  Some units of TRIAL that are slow begin
 * a first block with look-ahead.  Its first units are not counted, until the
 * distance has grown.  If it is clearly cheaper (CLEAR times) than the
 * cheapest of the units of TRIAL, the question is settled.  Else what is
 * ahead is used up, so that the block without that follows does not profit
 * from it; and so on for JUDGE_ROUNDS blocks of each side, whose medians are
 * compared.  The question is settled earlier if all blocks of one side are
 * clearly cheaper, or if the first pair says what had been found before.  A
 * small difference is a draw, and means "without": one under a tenth, or
 * under a fifth for statements of one row.  The reads of these cost other
 * processes about as much processor time as they save here, which many
 * sessions at once would lack.  Any difference is a draw where a unit without
 * takes less than FLOOR_US: a page that another process has copied from the
 * page cache is not in the caches of this processor.  The question is asked
 * again after an interval that doubles as long as the answer stays the same.
 * Where more is ahead by then than in other blocks, that is used up first:
 * units that start no reads of their own would seem to cost nothing.  The
 * question is asked earlier if a TRIAL, which is held now and then to check
 * that, is CHANGED times dearer than the blocks without, and than the TRIAL
 * that led to the question.  The first units of an execution are often dear,
 * until the kernel has read a file ahead.
 *
 * Only units that had to be read are counted, but the time of the others is
 * added to theirs, since to pass them costs more with look-ahead.  Outer rows
 * read much until the caches have filled, and little afterwards, so that the
 * side whose block comes later would seem to be cheaper.  Of these the cost of
 * a read is compared (JudgeComparesReads).  What was learnt, and blocks that
 * are half measured, stay with the session: executions that are too short for
 * a question share one.
 *
 * Where most units need no read, they tend to follow the order of the pages.
 * Then the kernel reads a file ahead, but only from its second or third page
 * on; and each read is dearer to look ahead for, since units are passed that
 * need none.  So the units of such a TRIAL must have waited SPARSE_US together,
 * and SPARSE_SLOW of them, more than the first pages of some files, be slow.
 *
 * What one session gains, others may lose: if the caller says that processors
 * are busy, look-ahead counts as dearer, without a question.
 *
 * Look-ahead is not even tried if reads take less than FLOOR_US, since these
 * come from the page cache of the system, or if less than STAKE_US can be won.
 * After fast reads units are not timed for a while, which doubles each time.
 * The next execution keeps a part of that, unless look-ahead was cheaper
 * before.
 *
 * In AHEAD, distance is no more than twice the units visited so far (so that a
 * node that is left early has read at most about two for nothing for each one
 * used), and no more than TRIAL_DISTANCE while a block is measured.  In the
 * first block it still grows, so that more units are started than are visited,
 * and the cost of a visited unit may be overstated; the later blocks begin with
 * the whole distance.
 *
 *-------------------------------------------------------------------------
 */
#include "c.h"

#include "exec/judge.h"

#define FLOOR_US 25
#define FLOOR_UNITS 8			/* fast reads that are enough */
#define REST_MIN 32
#define REST_MAX 1024
#define REST_KEPT 128			/* of a rest, for the next execution */
#define STAKE_US 2000
#define CHANGED 2				/* times dearer: what was learnt is outdated */
#define CHECK_UNITS 8			/* units whose mean says so */
#define CHECK_INTERVAL 512		/* units between two such checks */
#define BUSY_INTERVAL 1024		/* units until processors may be idle again */
#define SPARSE 8				/* units without a read to one with */
#define SPARSE_US 1000
#define SPARSE_SLOW 10			/* slow units that are enough */

#define TRIAL_DISTANCE 64
#define CLEAR 2
#define CLEAR_UNITS_WITH 16
#define CLEAR_UNITS_WITHOUT 3
#define CLEAR_ROUNDS_WITHOUT 2
#define LOST_UNITS 16			/* what a trial may cost */

#define EVIDENCE_MIN 2
#define EVIDENCE_MAX 64
#define MAX_UNUSED 3
#define IDLE_ENTRIES 4096

static const struct
{
	int			least_distance;
	int			cached_in_trial;	/* units without a read: TRIAL ends */
	int			cached_ahead;		/* and AHEAD ends */
	int			read_weighs;		/* units that one with a read makes up
									 * for */
	int			warm_up;			/* units before a block with look-ahead */
	int			block_with;			/* units of a block with look-ahead */
	int			block_without;
	int			interval_min[2];	/* units between questions, by JudgeSide */
	int			interval_max[2];
	double		draw;			/* part of the cost without that is no gain */
}			numbers[JUDGE_KINDS] =
{
	[JUDGE_HEAP_PAGES] = {4, 8, 256, 16, 16, 48, 32,
						  {1024, 1024}, {16384, 65536}, 0.9},
	[JUDGE_LEAF_PAGES] = {4, 8, 32, 16, 16, 32, 32,
						  {256, 256}, {4096, 16384}, 0.9},
	[JUDGE_LOOKUPS] = {1, 256, 512, 256, 16, 48, 32,
					   {1024, 1024}, {16384, 65536}, 0.9},
	[JUDGE_WRITES] = {1, 16, 64, 16, 16, 48, 32,
					  {1024, 1024}, {16384, 65536}, 0.9},
	[JUDGE_VALUES] = {4, 16, 64, 16, 32, 64, 32,
					  {1024, 1024}, {16384, 65536}, 0.9},
	[JUDGE_CHAINS] = {1, 16, 4, 4, 2, 32, 16,
					  {256, 256}, {4096, 16384}, 0.9},
	[JUDGE_ONE_ROW] = {1, 4, 8, 4, 1, 16, 16,
					   {1024, 1024}, {16384, 65536}, 0.8},
};

/*
 * What the session has learnt, at the hash value of each key or one of the next
 * few places.
 */
#define PLACES 256
#define PROBES 8
static JudgeLearnt remembered[PLACES];

JudgeLearnt *
JudgeRecall(JudgeKind kind, Oid relation, uint32 settings)
{
	uint64		key =
		((uint64) relation << 32 | (settings * JUDGE_KINDS + kind)) + 1;
	int			home = (key * UINT64CONST(0x9E3779B97F4A7C15)) >> 56;
	JudgeLearnt *learnt = &remembered[home];

	/* if all places are taken, the first one is given up */
	for (int i = 0; i < PROBES; i++)
	{
		JudgeLearnt *place = &remembered[(home + i) % PLACES];

		if (place->key == key || place->key == 0)
		{
			learnt = place;
			break;
		}
	}
	if (learnt->key != key)
		*learnt = (JudgeLearnt) {.key = key, .verdict = JUDGE_UNDECIDED};
	return learnt;
}

static inline bool
judge_is_question_open(const Judge *judge)
{
	const JudgeLearnt *learnt = judge->learnt;

	return judge->force == JUDGE_MEASURES &&
		(learnt->verdict == JUDGE_UNDECIDED || learnt->left <= 0);
}

/* Was look-ahead found dearer, and is it not time to ask again? */
static inline bool
judge_is_resting(const Judge *judge)
{
	return judge->force == JUDGE_MEASURES && judge->learnt->left > 0 &&
		judge->learnt->verdict == JUDGE_WITHOUT;
}

/* Is the next block to be measured one without look-ahead? */
static inline bool
judge_is_without_due(const Judge *judge)
{
	return judge_is_question_open(judge) &&
		judge->learnt->nblocks[JUDGE_WITH] >
		judge->learnt->nblocks[JUDGE_WITHOUT];
}

static void
judge_start_block(JudgeLearnt *learnt)
{
	learnt->units = learnt->warm_units = 0;
	learnt->weight = learnt->all_weight = 0;
	learnt->us = learnt->all_us = learnt->cheapest = 0;
}

static void
judge_start_question(JudgeLearnt *learnt)
{
	learnt->left = 0;
	learnt->nblocks[JUDGE_WITHOUT] = learnt->nblocks[JUDGE_WITH] = 0;
	judge_start_block(learnt);
}

static void
judge_start_watching(Judge *judge)
{
	judge->mode = JUDGE_WATCH;
	judge->timed = false;
	judge->cached = 0;
}

static void
judge_start_trial(Judge *judge)
{
	judge->mode = JUDGE_TRIAL;
	judge->timed = true;
	judge->cached = judge->tried = judge->passed = judge->slow = 0;
	judge->tried_weight = 0;
	judge->tried_us = judge->read_us = judge->clipped_us = judge->cheapest = 0;
}

/* By what the time of a unit is divided to get its cost. */
static inline int
judge_weight(const Judge *judge, int reads)
{
	return judge->per_read ? reads : reads > 0;
}

/* Let the distance grow with the units visited. */
static void
judge_set_distance(Judge *judge)
{
	int64		earned = numbers[judge->kind].least_distance +
		2 * (int64) judge->visited;
	int			most = judge->max_distance;

	if (judge->timed || judge_is_question_open(judge))
		most = Min(most, Max(TRIAL_DISTANCE, judge->batch));
	judge->distance = judge->runs_to_end ? most : (int) Min(earned, most);
}

static void
judge_start_ahead(Judge *judge)
{
	judge->mode = JUDGE_AHEAD;
	judge->timed = judge_is_question_open(judge);
	judge->cached = judge->idle_entries = 0;
	judge_set_distance(judge);
}

static void
judge_start_ending(Judge *judge)
{
	judge->mode = JUDGE_ENDING;
	judge->timed = false;
}

static void
judge_start_rest(Judge *judge)
{
	JudgeLearnt *learnt = judge->learnt;

	learnt->last_rest = Min(Max(learnt->last_rest * 2, REST_MIN), REST_MAX);
	learnt->rest = learnt->last_rest;
}

/* The median of at most three numbers; of two, their mean. */
static double
judge_median(const double *x, int n)
{
	if (n < 3)
		return (x[0] + x[n - 1]) / 2;
	return Max(Min(x[0], x[1]), Min(Max(x[0], x[1]), x[2]));
}

/* Is each of n numbers CLEAR times as large as each of others? */
static bool
judge_is_clearly_dearer(const double *x, const double *others, int n)
{
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++)
			if (x[i] < CLEAR * others[j])
				return false;
	return true;
}

/* The question is settled, for "interval" units. */
static void
judge_note_verdict(JudgeLearnt *learnt, JudgeSide verdict, int64 interval,
				   double cost_without)
{
	learnt->verdict = verdict;
	learnt->interval = interval;
	learnt->cost_without = cost_without;
	judge_start_question(learnt);
	learnt->left = interval;
}

/* Settle the question, if the blocks measured so far do. */
static void
judge_decide(JudgeKind kind, JudgeLearnt *learnt)
{
	const double *without = learnt->costs[JUDGE_WITHOUT];
	const double *with = learnt->costs[JUDGE_WITH];
	int			n = Min(learnt->nblocks[JUDGE_WITHOUT],
						learnt->nblocks[JUDGE_WITH]);
	JudgeSide	verdict;
	int64		interval;

	if (n == 0)
		return;
	verdict = judge_median(without, n) >= FLOOR_US &&
		judge_median(with, n) < numbers[kind].draw * judge_median(without, n) ?
		JUDGE_WITH : JUDGE_WITHOUT;
	if (n < JUDGE_ROUNDS && verdict != learnt->verdict &&
		!judge_is_clearly_dearer(without, with, n) &&
		!(n >= CLEAR_ROUNDS_WITHOUT &&
		  judge_is_clearly_dearer(with, without, n)))
		return;
	interval = verdict == learnt->verdict ? learnt->interval * 2 :
		numbers[kind].interval_min[verdict] *
		Max(1, judge_median(without, n) / Max(1, judge_median(with, n)));
	judge_note_verdict(learnt, verdict,
					   Min(interval, numbers[kind].interval_max[verdict]),
					   Max(judge_median(without, n), learnt->trial_cost));
}

/* A block of a side has been measured. */
static void
judge_note_block(Judge *judge, JudgeSide side, double cost)
{
	JudgeLearnt *learnt = judge->learnt;
	int			n = Min(learnt->nblocks[side], JUDGE_ROUNDS - 1);

	learnt->costs[side][n] = cost;
	learnt->nblocks[side] = n + 1;
	judge_start_block(learnt);
	judge_decide(judge->kind, learnt);
}

/* Is so much to be won, and has look-ahead not been found to be dearer? */
static bool
judge_is_worth_while(const Judge *judge, int64 wanted, double cost)
{
	if (judge->force == JUDGE_BELIEVES)
		return wanted > 0;
	if (!judge_is_question_open(judge))
		return wanted > 0 && judge->learnt->verdict == JUDGE_WITH;
	return wanted > 0 && wanted * cost + judge->learnt->stake_us >= STAKE_US;
}

/* Does even the cheapest unit without look-ahead show which is cheaper? */
static inline bool
judge_is_clear(double cheapest, double with)
{
	return cheapest >= Max(FLOOR_US, CLEAR * with);
}

/* In TRIAL, a unit of a block without look-ahead. */
static void
judge_measure_without(Judge *judge, int reads, double us, int64 wanted)
{
	JudgeLearnt *learnt = judge->learnt;
	int			nwith = learnt->nblocks[JUDGE_WITH];
	double		with = learnt->costs[JUDGE_WITH][nwith - 1];
	double		cost;

	learnt->us += us;
	if (reads == 0)
		return;
	cost = us / judge_weight(judge, reads);
	learnt->cheapest =
		learnt->units == 0 ? cost : Min(learnt->cheapest, cost);
	learnt->units++;
	learnt->weight += judge_weight(judge, reads);
	if (learnt->units < numbers[judge->kind].block_without &&
		(learnt->units < CLEAR_UNITS_WITHOUT ||
		 !judge_is_clear(learnt->cheapest, with)))
		return;
	cost = learnt->us / learnt->units;
	judge_note_block(judge, JUDGE_WITHOUT, learnt->us / learnt->weight);
	if (judge_is_worth_while(judge, wanted, cost))
		judge_start_ahead(judge);
	else
		judge_start_watching(judge);
}

/* In TRIAL: is it worth while to look ahead? */
static void
judge_consider(Judge *judge, int reads, double us, int64 wanted,
			   bool others_slow)
{
	JudgeLearnt *learnt = judge->learnt;
	double		read_us = us / reads;
	bool		is_sparse;
	bool		is_check = judge_is_resting(judge);
	int			evidence = Max(learnt->evidence,
							   is_check ? CHECK_UNITS : EVIDENCE_MIN);
	double		cost;

	learnt->left -= is_check;
	learnt->stake_us += us;
	cost = us / judge_weight(judge, reads);
	judge->cheapest = judge->tried == 0 ? cost : Min(judge->cheapest, cost);
	judge->tried++;
	judge->tried_weight += judge_weight(judge, reads);
	judge->tried_us += us;
	judge->read_us += us;
	judge->clipped_us += Min(read_us, 4 * FLOOR_US);
	judge->slow += read_us >= FLOOR_US;
	cost = judge->tried_us / judge->tried_weight;
	if (judge->force == JUDGE_BELIEVES)
		judge->slow = judge->tried;
	else if (judge->clipped_us < FLOOR_US * judge->tried)
	{
		if (judge->tried >= FLOOR_UNITS)
		{
			judge_start_rest(judge);
			judge_start_watching(judge);
		}
		return;
	}
	is_sparse = judge->passed >= SPARSE * judge->tried &&
		learnt->verdict != JUDGE_WITH && judge->force == JUDGE_MEASURES;
	if (evidence == EVIDENCE_MIN && !is_sparse &&
		(others_slow || learnt->verdict == JUDGE_WITH))
		evidence = 1;
	if (is_sparse)
		evidence = Max(evidence, SPARSE_SLOW);
	if (judge->slow < evidence || (is_sparse && judge->read_us < SPARSE_US))
		return;
	judge->until_check = CHECK_INTERVAL;
	if (is_check && cost >= CHANGED * learnt->cost_without)
	{
		learnt->verdict = JUDGE_UNDECIDED;
		judge_start_question(learnt);
	}
	if (judge_is_resting(judge))
		judge_start_watching(judge);
	else if (judge_is_worth_while(judge, wanted,
								  judge->tried_us / judge->tried))
	{
		learnt->trial_cost = cost;
		learnt->last_rest = 0;
		judge_start_ahead(judge);
	}
}

/* In AHEAD, a unit of a block with look-ahead. */
static void
judge_measure_with(Judge *judge, int reads, double us, int held)
{
	JudgeLearnt *learnt = judge->learnt;
	bool		is_first = learnt->nblocks[JUDGE_WITHOUT] == 0;
	int			least = Max(numbers[judge->kind].warm_up, judge->batch);
	int			most = Max(numbers[judge->kind].block_with, 4 * judge->batch);
	double		without = is_first ?
		(judge->tried > 0 ? judge->tried_us / judge->tried_weight : 0) :
		judge_median(learnt->costs[JUDGE_WITHOUT],
					 learnt->nblocks[JUDGE_WITHOUT]);
	double		mean_weight;
	double		cost;
	int			all;

	if (judge_is_without_due(judge))
	{
		judge_start_ending(judge);
		return;
	}
	learnt->all_us += us;
	learnt->all_weight += judge_weight(judge, reads);
	if (learnt->warm_units < least)
		learnt->warm_units += reads > 0;
	else
	{
		learnt->us += us;
		learnt->units += reads > 0;
		learnt->weight += judge_weight(judge, reads);
	}
	if (reads == 0)
		return;

	/* units that are held are taken to weigh as much as others */
	all = learnt->warm_units + learnt->units;
	mean_weight = (double) learnt->all_weight / all;
	cost = learnt->all_us / (mean_weight * (all + held));

	/* stop a trial that costs much */
	if (without > 0 && learnt->all_us >
		without * mean_weight * (CLEAR * (all + LOST_UNITS) + held))
	{
		judge_note_block(judge, JUDGE_WITH, cost);
		judge_start_ending(judge);
		return;
	}
	if (learnt->units < Min(most, CLEAR_UNITS_WITH + judge->batch))
		return;
	cost = Max(learnt->us / learnt->weight, cost);
	if (is_first && judge->tried >= EVIDENCE_MIN &&
		judge_is_clear(judge->cheapest, cost))
	{
		learnt->costs[JUDGE_WITHOUT][0] = judge->cheapest;
		learnt->nblocks[JUDGE_WITHOUT] = 1;
	}
	else if (learnt->units < most)
		return;
	judge_note_block(judge, JUDGE_WITH, cost);
	judge->timed = false;
	if (judge_is_question_open(judge) || learnt->verdict == JUDGE_WITHOUT)
		judge_start_ending(judge);
}

void
JudgeInit(Judge *judge, JudgeKind kind, JudgeForce force)
{
	*judge = (Judge) {
		.mode = JUDGE_WATCH,
		.kind = kind,
		.force = force,
		.max_distance = PG_INT32_MAX,
		.learnt = &judge->own,
		.own = {.verdict = JUDGE_UNDECIDED},
	};
	if (force == JUDGE_FORCED)
		judge_start_ahead(judge);
}

void
JudgeRunsToEnd(Judge *judge)
{
	judge->runs_to_end = true;
	judge_set_distance(judge);
}

void
JudgeComparesReads(Judge *judge)
{
	judge->per_read = true;
}

void
JudgeForbid(Judge *judge)
{
	judge->forbidden = true;
	judge_start_watching(judge);
}

void
JudgeSetMaximum(Judge *judge, int max_distance, int batch)
{
	judge->max_distance = max_distance;
	judge->batch = batch;
	judge_set_distance(judge);
}

void
JudgeReadSeen(Judge *judge, Oid relation, uint32 settings)
{
	if (judge->forbidden)
		return;
	if (judge->learnt == &judge->own && OidIsValid(relation))
	{
		judge->learnt = JudgeRecall(judge->kind, relation,
									settings * 2 + judge->per_read);
		judge->learnt->rest = judge->learnt->verdict == JUDGE_WITH ? 0 :
			Min(judge->learnt->rest, REST_KEPT);
	}
	if (judge->learnt->rest > 0)
		judge->learnt->rest--;
	else if (judge->until_check > 0 && judge_is_resting(judge))
	{
		judge->until_check--;
		judge->learnt->left--;
	}
	else if (judge->force == JUDGE_FORCED)
		judge_start_ahead(judge);
	else
		judge_start_trial(judge);
}

void
JudgeUnit(Judge *judge, int reads, double us, int held, int64 wanted,
		  bool others_slow)
{
	judge->visited = Min(judge->visited, PG_INT32_MAX - 1) + 1;
	if (judge->mode == JUDGE_TRIAL)
	{
		judge->cached = reads > 0 ? 0 : judge->cached + 1;
		if (judge->cached >= numbers[judge->kind].cached_in_trial)
			judge_start_watching(judge);
		else if (judge_is_without_due(judge))
			judge_measure_without(judge, reads, us, wanted);
		else if (reads > 0)
			judge_consider(judge, reads, us, wanted, others_slow);
		else
		{
			judge->passed++;
			judge->tried_us += us;
		}
	}
	else if (judge->mode == JUDGE_AHEAD)
	{
		judge->cached = reads > 0 ?
			Max(0, judge->cached - numbers[judge->kind].read_weighs) :
			judge->cached + 1;
		if (reads > 0)
			judge->idle_entries = 0;
		judge_set_distance(judge);
		if (judge->force == JUDGE_FORCED)
			return;
		if (judge->cached >= numbers[judge->kind].cached_ahead)
			judge_start_ending(judge);
		else if (judge->timed && judge_is_question_open(judge))
			judge_measure_with(judge, reads, us, held);
		else if (judge->force == JUDGE_MEASURES && reads > 0 &&
				 --judge->learnt->left <= 0)
		{
			/* as much is to be ahead as in other blocks, and no more */
			judge_set_distance(judge);
			if (held > judge->distance)
				return;
			judge_start_question(judge->learnt);
			judge->learnt->warm_units =
				Max(numbers[judge->kind].warm_up, judge->batch);
			judge->timed = true;
			judge->tried = 0;
		}
	}
}

void
JudgeEntries(Judge *judge, int entries, int held)
{
	judge->idle_entries += entries;
	if (judge->mode == JUDGE_AHEAD && judge->force != JUDGE_FORCED &&
		judge->idle_entries >= IDLE_ENTRIES)
		judge_start_ending(judge);
	if (judge->mode != JUDGE_ENDING || held > 0)
		return;
	if (judge_is_without_due(judge))
		judge_start_trial(judge);
	else
		judge_start_watching(judge);
}

void
JudgeNoRoom(Judge *judge)
{
	if (judge->mode != JUDGE_AHEAD)
		return;
	judge_start_rest(judge);
	judge_start_ending(judge);
}

void
JudgeProcessorsAreBusy(Judge *judge)
{
	JudgeLearnt *learnt = judge->learnt;
	int64		interval = learnt->verdict == JUDGE_WITHOUT ?
		learnt->interval * 2 : BUSY_INTERVAL;

	if (judge->mode != JUDGE_AHEAD || judge->force != JUDGE_MEASURES)
		return;
	judge_note_verdict(learnt, JUDGE_WITHOUT,
					   Min(interval,
						   numbers[judge->kind].interval_max[JUDGE_WITHOUT]),
					   learnt->trial_cost);
	judge_start_ending(judge);
}

void
JudgeBegunAgain(Judge *judge, uint64 used, uint64 unused)
{
	JudgeLearnt *learnt = judge->learnt;
	int			evidence;

	judge->visited = 0;
	if (judge->mode == JUDGE_AHEAD)
		judge_set_distance(judge);
	if (judge->force == JUDGE_FORCED)
		return;
	evidence = Max(learnt->evidence, EVIDENCE_MIN);
	if (unused > MAX_UNUSED * used)
	{
		learnt->evidence = Min(evidence * 2, EVIDENCE_MAX);
		if (judge->mode >= JUDGE_AHEAD)
			judge_start_watching(judge);
	}
	else if (used > 0)
		learnt->evidence = evidence - 1;
}

Refusal
JudgeReason(const Judge *judge)
{
	if (judge->learnt->verdict == JUDGE_WITHOUT)
		return REFUSED_NOT_FASTER;
	return judge->learnt->last_rest > 0 ? REFUSED_FAST_READS :
								  REFUSED_NOTHING_TO_WAIT_FOR;
}
