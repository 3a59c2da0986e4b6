/*-------------------------------------------------------------------------
 *
 * join_node.h
 *		A nested loop, or a node with correlated subplans, that has been taken
 *		over.
 *
 * The node itself is executed by the server.  What is replaced is the function
 * of its outer child and, while rows are fetched ahead, those of the index
 * scans on its inner side; see inner_side.h.  A scan with subplans has no outer
 * child: it is the source of its own rows; see scanned_rows.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_JOIN_NODE_H
#define PG_LOOKAHEAD_JOIN_NODE_H

#include "early/rows_ahead.h"
#include "exec/ahead_node.h"
#include "exec/judge.h"
#include "join/inner_side.h"
#include "observe/totals.h"
#include "portability/instr_time.h"

/* What has been done for the first outer row; see chain.c. */
typedef enum FirstRow
{
	FIRST_ROW_TO_COME,
	FIRST_ROW_LOOKED_UP,		/* its key is being looked up */
	FIRST_ROW_ARRIVED,			/* and its turn has come */
	FIRST_ROW_OVER
} FirstRow;

/* An execution of a chain of joins that is watched closely, or looks ahead. */
typedef struct JoinChain
{
	Judge	   *judge;			/* NULL: it has been told */
	JudgeMode	mode;			/* of the judge, when the execution began */
	bool		timed;			/* time of inner sides is added to "inside" */
	instr_time	inside;
	int64		reads_before;	/* when the first row came to the bottom; -1 */
} JoinChain;

/* A plan that is executed for each row, and whose time is measured. */
typedef struct JoinTimed
{
	AheadNode	base;			/* leads from its topmost node to this struct */
	struct JoinNode *node;
	PlanState  *top;
	ExecProcNodeMtd fetch;		/* its own ExecProcNode; NULL: not replaced */
} JoinTimed;

typedef struct JoinNode
{
	/* unchanging */
	AheadNode	base;
	PlanState  *source;			/* the outer child; or the scan itself */
	ExecProcNodeMtd fetch;		/* fetches its next row */
	ExecProcNodeMtd fetch_scan; /* of a scan: its own ExecProcNode */
	Relation	relations[2];	/* table and index of the first index scan on
								 * the inner side */
	bool		several;		/* there are further such scans */
	const int64 *reads;			/* this backend's count of blocks read */

	/* its place in a chain; see chain.c */
	struct JoinNode *below;		/* the join that is its outer child, or NULL */
	struct JoinNode *above;
	struct JoinNode *origin;	/* where its key is known first */
	const AttrNumber *columns;	/* of the row there, for the key */
	bool		looks_up;		/* it is the origin of a join above */

	/* made when it first looks ahead, or when times are wanted first */
	Refusal		refusal;		/* why the join must not look ahead */
	Refusal		inner_refusal;	/* why no key can be looked up */
	InnerSide  *inner;
	RowsAhead  *rows;			/* NULL: there are none */
	List	   *params;			/* parameters that the outer side uses */
	bool		infallible;		/* rows may be ahead that are not certain */
	Bitmapset  *read;			/* columns of its table that the source reads */
	bool		opened;			/* nothing forbids it to look ahead */
	int64		granted;		/* bytes of memory that the query grants it */
	int			max_rows;		/* most rows ahead */
	int			ntimed;
	JoinTimed  *timed;

	/* of all executions */
	Judge		judge;			/* of outer rows */
	bool		executes_inner; /* the inner scans, by inner_side.c */
	bool		left_early;		/* it has been begun again before its end */
	int64		most_returned;	/* most rows returned for an outer row */
	uint64		rows_of_ring;	/* rows that were handed out of the ring */
	uint64		size_sum;		/* sum of the numbers of rows ahead of each */
	JoinCounters counters;

	/* for an execution */
	bool		asked;			/* it has been asked for a row */
	Judge	   *chain_judge;	/* is to be told of reads, or NULL */
	JoinChain  *chain;			/* NULL: nothing is to be done for it */
	FirstRow	first_row;
	InnerParts *first_parts;	/* of the first row, until it is in the ring */
	bool		watching;		/* rescans of the outer child are noticed */
	bool		begun_again;	/* the outer child was rescanned */
	bool		outer_ended;	/* the child has ended, the ring has not */
	bool		search_stopped;	/* no row that is not certain is near */
	uint64		handed_out;		/* rows handed out since the join was begun */
	int64		wanted_first;	/* RowsWanted() at the first of these rows */
	int64		wanted_last;	/* RowsWanted() at the last of them */
	uint64		fill_at;		/* rows_of_ring when rows are fetched next */
	int			ndone;			/* rows, from the oldest on, that are done */
	int			idle;			/* rows ahead for which nothing is read */

	/* for an outer row */
	bool		is_watched;		/* no row is passed over */
	int64		reads_seen;		/* *reads when a row was handed out */
	int64		misses_seen;	/* the inner side's misses at that time */
	instr_time	inside;			/* time spent for the row, if that is wanted */
} JoinNode;

/* inner_run.c: how the inner side is executed. */

/* Why may no key be looked up in an index of a table? */
extern Refusal JoinLookUpRefusal(Relation table);

/*
 * Create the state of the inner side, if that has not been done.  Return false
 * if no key can be looked up.  max_rows: the most rows ahead.  infallible: may
 * there be rows that the query may not ask for?
 */
extern bool JoinOpenInner(JoinNode *node, int max_rows, bool infallible);

/* How many rows that need a read may be ahead? */
extern int	JoinMaxRows(const JoinNode *node);

/* Have the inner scans executed by inner_side.c from now on, or no longer. */
extern void JoinExecuteInner(JoinNode *node, bool executes);

/* Count the time of the row plans from now on, if a judge wants it. */
extern void JoinTimeInner(JoinNode *node);

/* Leave the time of the row plans: their own functions are asked for. */
extern void JoinUntimeInner(JoinNode *node);

/* Add the time since "start", unless it is zero, to what judges are told. */
extern void JoinStopTiming(JoinNode *node, instr_time start);

/* next_outer.c: the next row of the source. */
extern TupleTableSlot *JoinNextRow(JoinNode *node);

/* The ExecProcNode function of the outer child. */
extern TupleTableSlot *JoinNextOuter(PlanState *outer);

/*
 * scanned_rows.c: the ExecProcNode function of a scan with subplans; and what
 * fetches its next row, before its filter and its target list.
 */
extern TupleTableSlot *JoinScan(PlanState *scan);
extern TupleTableSlot *JoinFetchScanned(PlanState *scan);

/* Return the counters, as if the join were not executed again. */
extern JoinCounters JoinNodeCounters(const JoinNode *node);

/* The nested loop will not be executed again; see AheadMethods.end. */
extern void JoinEnd(AheadNode *base);

/*
 * chain.c: nested loops above each other, each the outer child of the next
 * one.
 *
 * For the first row of such a chain the inner sides of all joins are executed
 * one after the other, though the keys of some depend on the same row.  These
 * keys are looked up together, once that row has come.
 *
 * No row is fetched early for that, and no key is looked up before the row that
 * it depends on has come.  The join that a key belongs to may not come to its
 * turn, if one below finds no match.  So keys must be infallible.
 *
 * Whether this is done is decided by a judge (judge.h) that the session keeps
 * for the chain, since most such statements have one row, and are executed many
 * times over.  Its unit is the first row of an execution.
 */

/* A join has been taken over; "below", if not NULL, is its outer child. */
extern void ChainLink(JoinNode *node, JoinNode *below);

/* The join is asked for an outer row; called while it is watched closely. */
extern void ChainBeforeRow(JoinNode *node);

/* It has returned one, or NULL. */
extern void ChainAfterRow(JoinNode *node, TupleTableSlot *slot);

/* The row has been put into the ring; true if its keys were looked up. */
extern bool ChainTakesRow(JoinNode *node, InnerParts *parts);

/* The join will not be executed again; see AheadMethods.end. */
extern void ChainEnd(JoinNode *node);

#endif							/* PG_LOOKAHEAD_JOIN_NODE_H */
