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

#include "exec/ahead_node.h"
#include "exec/judge.h"
#include "executor/instrument.h"
#include "observe/totals.h"
#include "portability/instr_time.h"
#include "write/index_keys.h"

typedef struct OneRow OneRow;
typedef struct UpdatedRows UpdatedRows;

/* A table that rows are written into: the statement's, or a partition of it. */
typedef struct WritePart
{
	struct WritePart *next;
	ResultRelInfo *table;
	Refusal		refusal;		/* why nothing may be looked up in it */
	KeysAhead	keys;			/* made when it first looks ahead */
	TupleTableSlot *row;		/* if its rows differ from the statement's */
} WritePart;

typedef struct WriteNode
{
	AheadNode	base;
	Judge		judge;
	OneRow	   *one;			/* no row is known ahead; else NULL */
	ExecProcNodeMtd fetch;		/* the child's own ExecProcNode */
	WritePart	whole;			/* the statement's table, then partitions */
	WritePart  *part;			/* the one that is written into now */
	int			nparts;

	const int64 *reads;			/* this backend's count of blocks read */
	int64		reads_seen;		/* its value when a row was handed out */
	int64		misses_seen;	/* the indexes' misses at that time */
	bool		has_written;	/* a row has been handed out */
	instr_time	started;		/* time counts since then; zero: it does not */
	instr_time	inside;			/* spent for that row, without the child */

	/* made when it first looks ahead */
	List	   *params;			/* parameters that the child uses */
	bool		child_ended;	/* the child has ended, the ring has not */

	/* of an UPDATE, made with them */
	Bitmapset  *key_columns;	/* those that it sets and indexes depend on */
	TupleTableSlot *old_row;
	TupleTableSlot *new_row;
	UpdatedRows *updated;		/* how coming rows are computed, or NULL */
	Refusal		row_by_row;		/* why they are not */
	int			strays;			/* rows in a row that were none of the ring */
} WriteNode;

/* The table that is written to, or the partition. */
static inline ResultRelInfo *
WriteTable(const WriteNode *node)
{
	return node->part->table;
}

/* Are rows put into partitions of the statement's table? */
static inline bool
WriteIsPartitioned(const ModifyTableState *statement)
{
	return statement->operation == CMD_INSERT &&
		statement->mt_partition_tuple_routing != NULL;
}

/* Does a trigger run before a row is written, and perhaps change it? */
extern bool WriteHasTriggers(const ResultRelInfo *table);

/*
 * Open the ring for the table's indexes, which are open; called in the query's
 * memory.
 */
extern Refusal WriteOpenKeys(WriteNode *node, const RowsBounds *bounds);

/* Return the counters, as if nothing more were written. */
extern WriteCounters WriteTell(const WriteNode *node);

/*
 * The blocks that have been read of the indexes, as the statistics count; -1 if
 * that is not known.
 */
static inline int64
WriteMisses(const WriteNode *node)
{
	const ResultRelInfo *table = WriteTable(node);

	return IndexMisses(table->ri_IndexRelationDescs, table->ri_NumIndices);
}

/*
 * Our functions run while the child is executed, but what they read and count
 * is the ModifyTable node's: have EXPLAIN (BUFFERS) say so.  before: what had
 * been counted when they began.
 */
extern void WriteCountForNode(PlanState *child, const BufferUsage *before);

/* The ExecProcNode functions of the child, for many rows and for one. */
extern TupleTableSlot *WriteNextRow(PlanState *child);
extern TupleTableSlot *WriteOneRow(PlanState *child);

/*
 * Is a statement that writes one row into a table to be looked at?  Nearly
 * always it is not.  Called once for each such statement.
 */
extern bool OneRowIsWatched(Relation table, CmdType operation);

/* Has a table enough indexes for looking them up together? */
extern bool OneRowHasIndexes(Relation table);

/* What the session knows of a table's rows that are inserted, or updated. */
extern OneRow *OneRowOf(Oid table, CmdType operation);

/* Why was nothing looked up for the row? */
extern Refusal OneRowReason(const OneRow *one);

#endif							/* PG_LOOKAHEAD_WRITE_NODE_H */
