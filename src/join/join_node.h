/*-------------------------------------------------------------------------
 *
 * join_node.h
 *		A nested loop that has been taken over.
 *
 * The nested loop itself is executed by the server.  What is replaced is the
 * function of its outer child and, while rows are fetched ahead, those of the
 * index scans on its inner side; see inner_side.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_JOIN_NODE_H
#define PG_LOOKAHEAD_JOIN_NODE_H

#include "exec/taken.h"
#include "join/inner_side.h"
#include "join/policy.h"
#include "join/rows_ahead.h"
#include "observe/join_stats.h"
#include "portability/instr_time.h"

typedef struct JoinNode
{
	Taken		taken;
	JoinPolicy	policy;
	ExecProcNodeMtd fetch;		/* the outer child's own function */
	PlanState  *scan;			/* the first index scan on the inner side */
	bool		is_append;		/* and there may be others */

	const int64 *reads;			/* this backend's count of blocks read */
	int64		reads_seen;		/* its value when a row was handed out */
	int64		misses_seen;	/* and that of the inner side's */
	bool		timed;			/* and the time was taken */
	instr_time	started;

	/* made when it first looks ahead */
	const char *refusal;		/* why it must not */
	InnerSide  *inner;
	RowsAhead  *rows;
	List	   *params;			/* that the outer side uses */

	bool		watching;		/* a rescan will be noticed */
	bool		begun_again;	/* it has been */
	bool		outer_ended;	/* and its end has not been handed out */
	uint64		handed_out;		/* rows, since the join was begun */
	int64		wanted_first;	/* RowsWanted() of the first of these */
	int64		wanted_last;	/* and of the last */
	int64		most_returned;	/* rows, for one of these */
	uint64		rows_of_ring;	/* rows that were handed out of the ring */
	uint64		size_sum;		/* of the rows ahead of each of these */
	JoinCounters counters;
} JoinNode;

/* next_outer.c: the ExecProcNode function of the outer child. */
extern TupleTableSlot *JoinNextOuter(PlanState *outer);

/* What it has done so far, if it is not executed again. */
extern JoinCounters JoinTell(const JoinNode *node);

/* The nested loop will not be executed again; see Taker.end. */
extern void JoinFinish(JoinNode *node, bool wait);

#endif							/* PG_LOOKAHEAD_JOIN_NODE_H */
