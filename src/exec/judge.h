/*-------------------------------------------------------------------------
 *
 * judge.h
 *		When a node looks ahead, and how far; see judge.c.
 *
 * A pure automaton: it is told what happens, and what it decides is in "mode",
 * "distance" and "timed".  It calls nobody, reads no clock, and knows nothing
 * of the server.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_JUDGE_H
#define PG_LOOKAHEAD_JUDGE_H

#include "observe/refusal.h"

/* What is counted: the units of work. */
typedef enum JudgeKind
{
	JUDGE_HEAP_PAGES,			/* heap pages of an index scan */
	JUDGE_LEAF_PAGES,			/* leaf pages of a btree */
	JUDGE_LOOKUPS,				/* outer rows of a nested loop */
	JUDGE_WRITES,				/* rows that are written */
	JUDGE_VALUES,				/* TOASTed values, or parts of long ones */
	JUDGE_CHAINS,				/* first rows of chains of nested loops */
	JUDGE_ONE_ROW				/* statements that write one row each */
} JudgeKind;

#define JUDGE_KINDS (JUDGE_ONE_ROW + 1)

typedef enum JudgeMode
{
	JUDGE_WATCH,				/* as the server does; was anything read? */
	JUDGE_TRIAL,				/* as the server does; what does that cost? */
	JUDGE_AHEAD,				/* units are read ahead */
	JUDGE_ENDING				/* those that have been are used up */
} JudgeMode;

/* What the setting debug_force says; its values are in this order. */
typedef enum JudgeForce
{
	JUDGE_MEASURES,
	JUDGE_FORCED,				/* always ahead */
	JUDGE_BELIEVES				/* look-ahead is taken to be cheaper */
} JudgeForce;

/* The two sides of the question, and how many blocks of each are compared. */
typedef enum JudgeSide
{
	JUDGE_UNDECIDED = -1,
	JUDGE_WITHOUT,
	JUDGE_WITH
} JudgeSide;

#define JUDGE_ROUNDS 3

/* What is known of the units of one relation; kept for the session. */
typedef struct JudgeLearnt
{
	uint64		key;
	JudgeSide	verdict;
	int64		left;			/* units until the question is asked again */
	int64		interval;		/* units between this question and the next */
	double		cost_without;	/* far more is a change; see Judge.per_read */
	int			evidence;		/* slow units wanted to begin; 0: the least */
	int			rest;			/* reads until units are timed again */
	int			last_rest;		/* length of the last rest; 0: there was none */

	/* while the question is open */
	int			nblocks[2];		/* blocks measured, by JudgeSide */
	double		costs[2][JUDGE_ROUNDS];
	double		stake_us;		/* µs of all units of TRIAL */
	double		trial_cost;		/* before it began ahead */
	int			units;			/* units of the block being measured */
	int			warm_units;		/* units before these */
	int64		weight;			/* by what the cost of "units" is divided */
	int64		all_weight;		/* and that of both */
	double		us;				/* µs that "units" took */
	double		all_us;			/* µs that both took */
	double		cheapest;		/* cost of the cheapest of "units" */
} JudgeLearnt;

/* Only mode, distance, timed and visited are for others to read. */
typedef struct Judge
{
	JudgeMode	mode;
	int			distance;		/* in AHEAD: units wanted ahead */
	bool		timed;			/* are the times of units wanted? */
	int			visited;		/* units since the node was begun */

	JudgeKind	kind;
	JudgeForce	force;
	bool		forbidden;
	bool		runs_to_end;
	bool		per_read;		/* costs are µs of a read, else of a unit */
	int			max_distance;
	int			batch;			/* most units whose reads start together */
	JudgeLearnt *learnt;		/* points to the session's, or to "own" */
	JudgeLearnt own;
	int			until_check;	/* units until what was learnt is checked */
	int			cached;			/* units without a read, lately */
	int			idle_entries;	/* in AHEAD: entries since the last read */

	/* in TRIAL, of the units that had to be read */
	int			tried;
	int			passed;			/* those in between, without a read */
	int			slow;
	int64		tried_weight;	/* by what the cost of "tried" is divided */
	double		tried_us;		/* µs of both */
	double		read_us;		/* µs of "tried" */
	double		clipped_us;
	double		cheapest;		/* cost of the cheapest of "tried" */
} Judge;

/* Begin in WATCH, or if forced in AHEAD. */
extern void JudgeInit(Judge *judge, JudgeKind kind, JudgeForce force);

/* What the session remembers of units of a kind of a relation. */
extern JudgeLearnt *JudgeRecall(JudgeKind kind, Oid relation, uint32 settings);

/* The node is never left early, so that the distance is not to be earned. */
extern void JudgeRunsToEnd(Judge *judge);

/*
 * Compare what a read costs, not what a unit does: the units differ in what
 * they have to read, and JudgeUnit() is always told how much that is.  Said
 * before the first unit.
 */
extern void JudgeComparesReads(Judge *judge);

/* Never look ahead: there is no way to. */
extern void JudgeForbid(Judge *judge);

/*
 * At most max_distance units can be ahead, of which the reads of "batch" are
 * started together.
 */
extern void JudgeSetMaximum(Judge *judge, int max_distance, int batch);

/*
 * In WATCH: something was read, by whomever.  JudgeRecall() is asked of the
 * relation and the settings; InvalidOid: nobody remembers its units.
 */
extern void JudgeReadSeen(Judge *judge, Oid relation, uint32 settings);

/*
 * In other modes: a unit was visited, for which "reads" blocks had to be read,
 * ahead or not, in us microseconds inside the node (0 if not "timed").  "held"
 * units are ahead, which does not count in TRIAL; at most "wanted" are to be
 * visited still, which only counts in TRIAL, if the unit had to be read.
 * others_slow: another node of the query looks ahead.
 */
extern void JudgeUnit(Judge *judge, int reads, double us, int held,
					  int64 wanted, bool others_slow);

/* In AHEAD, ENDING: entries were passed over; "held" units are still ahead. */
extern void JudgeEntries(Judge *judge, int entries, int held);

/* Leave AHEAD for a while: there is no room. */
extern void JudgeNoRoom(Judge *judge);

/* In AHEAD: this process waits for a processor, rather than for storage. */
extern void JudgeProcessorsAreBusy(Judge *judge);

/*
 * The node was begun again, or moved so that nothing is ahead any more.  Of the
 * units read ahead since the last call "used" were used, and "unused" were not.
 */
extern void JudgeBegunAgain(Judge *judge, uint64 used, uint64 unused);

/* Return why nothing was read ahead. */
extern Refusal JudgeReason(const Judge *judge);

/* Do so; refusal: what has forbidden it, if anything; began: it was tried. */
static inline Refusal
JudgeReasonOf(const Judge *judge, Refusal refusal, bool began)
{
	if (refusal != NOT_REFUSED)
		return refusal;
	return began ? REFUSED_NOTHING_TO_READ : JudgeReason(judge);
}

#endif							/* PG_LOOKAHEAD_JUDGE_H */
