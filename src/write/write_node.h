/*-------------------------------------------------------------------------
 *
 * write_node.h
 *		A ModifyTable node whose rows are fetched ahead.
 *
 * The node itself is executed by the server.  What is replaced is the function
 * of its child.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_WRITE_NODE_H
#define PG_LOOKAHEAD_WRITE_NODE_H

#include "early/rows_ahead.h"
#include "exec/ahead_node.h"
#include "exec/judge.h"
#include "observe/totals.h"
#include "portability/instr_time.h"
#include "write/index_keys.h"

typedef struct WriteNode
{
	AheadNode	base;
	Judge		judge;
	ExecProcNodeMtd fetch;		/* the child's own ExecProcNode */

	const int64 *reads;			/* this backend's count of blocks read */
	int64		reads_seen;		/* its value when a row was handed out */
	int64		misses_seen;	/* the indexes' misses at that time */
	bool		has_written;	/* a row has been handed out */
	bool		is_timed;		/* time has been counted since "started" */
	instr_time	started;
	instr_time	inside;			/* spent for that row, without the child */

	/* made when it first looks ahead */
	Refusal		refusal;		/* why the node must not look ahead */
	RowsAhead  *rows;			/* with a LookupKey for each index */
	List	   *params;			/* parameters that the child uses */
	IndexShared shared;
	int			nindexes;
	IndexKeys **indexes;
	RowAhead   *arrived;		/* the row that was handed out of the ring */
	bool		child_ended;	/* the child has ended, the ring has not */
	uint64		rows_of_ring;	/* rows that were handed out of the ring */
	uint64		size_sum;		/* sum of the numbers of rows ahead of each */
	WriteCounters counters;		/* of rows; see WriteTell() */
} WriteNode;

/* plan_rows.c: the ExecProcNode function of the child. */
extern TupleTableSlot *WriteNextRow(PlanState *child);

/* Return the counters, as if the node were not executed again. */
extern WriteCounters WriteTell(const WriteNode *node);

#endif							/* PG_LOOKAHEAD_WRITE_NODE_H */
