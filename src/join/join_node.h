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

#include "exec/ahead_node.h"
#include "exec/judge.h"
#include "join/inner_side.h"
#include "early/rows_ahead.h"
#include "observe/totals.h"
#include "portability/instr_time.h"

typedef struct JoinNode
{
	AheadNode base;
	Judge		judge;			/* of outer rows */
	ExecProcNodeMtd fetch;		/* the outer child's own ExecProcNode */
	PlanState  *scan;			/* the first index scan on the inner side */
	bool		several;		/* there are further ones */

	const int64 *reads;			/* this backend's count of blocks read */
	int64		reads_seen;		/* its value when a row was handed out */
	int64		misses_seen;	/* the inner side's misses at that time */
	ExecProcNodeMtd fetch_inner;	/* the inner child's, while it is timed */
	instr_time	inside;			/* time spent for the row, if that is wanted */

	/* made when it first looks ahead */
	Refusal		refusal;		/* why the join must not look ahead */
	InnerSide  *inner;
	RowsAhead  *rows;
	List	   *params;			/* parameters that the outer side uses */
	bool		infallible;		/* rows may be ahead that are not certain */
	int			max_rows;		/* most rows ahead */
	int			settled;		/* rows, from the oldest on, that are done */
	int			idle;			/* of these, rows for which nothing was read */
	bool		search_stopped;	/* none of these is near */

	bool		executes_inner; /* the inner scans, by inner_side.c */
	bool		watching;		/* rescans of the outer child are noticed */
	bool		begun_again;	/* the outer child was rescanned */
	bool		outer_ended;	/* the child has ended, the ring has not */
	bool		left_early;		/* it has been begun again before its end */
	uint64		handed_out;		/* rows handed out since the join was begun */
	int64		wanted_first;	/* RowsWanted() at the first of these rows */
	int64		wanted_last;	/* RowsWanted() at the last of them */
	int64		most_returned;	/* most rows returned for one of them */
	uint64		rows_of_ring;	/* rows that were handed out of the ring */
	uint64		size_sum;		/* sum of the numbers of rows ahead of each */
	JoinCounters counters;
} JoinNode;

/* next_outer.c: the ExecProcNode function of the outer child. */
extern TupleTableSlot *JoinNextOuter(PlanState *outer);

/* Return the counters, as if the join were not executed again. */
extern JoinCounters JoinTell(const JoinNode *node);

/* The nested loop will not be executed again; see AheadMethods.end. */
extern void JoinFinish(JoinNode *node);

#endif							/* PG_LOOKAHEAD_JOIN_NODE_H */
