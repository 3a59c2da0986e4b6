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
#include "read/uncount.h"
#include "write/index_keys.h"

typedef struct UpdatedRows UpdatedRows;

/* What the session knows of rows that are written into a table one by one. */
typedef struct OneRow
{
	Oid			table;
	CmdType		operation;
	int			force;			/* settings when the judge began */
	int			concurrency;
	Judge		judge;
	int64		reads_seen;		/* of this process, at the last statement */
} OneRow;

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
	/* unchanging */
	AheadNode	base;
	OneRow	   *one;			/* no row is known ahead; else NULL */
	ExecProcNodeMtd fetch;		/* the child's own ExecProcNode */
	const int64 *reads;			/* this backend's count of blocks read */

	/* made when it first looks ahead, or comes to a partition */
	WritePart	whole;			/* the statement's table, then partitions */
	WritePart  *part;			/* the one that is written into now */
	int			nparts;
	List	   *params;			/* parameters that the child uses */

	/* of an UPDATE, made with them */
	Bitmapset  *key_columns;	/* those that it sets and indexes depend on */
	TupleTableSlot *old_row;
	TupleTableSlot *new_row;
	UpdatedRows *updated;		/* how coming rows are computed, or NULL */
	Refusal		row_by_row;		/* why they are not */

	/* for the execution */
	Judge		judge;
	bool		child_ended;	/* the child has ended, the ring has not */
	bool		has_written;	/* a row has been handed out */
	int			strays;			/* rows in a row that were none of the ring */

	/* for a row */
	int64		reads_seen;		/* *reads when a row was handed out */
	int64		misses_seen;	/* the indexes' misses at that time */
	instr_time	started;		/* time counts since then; zero: it does not */
	instr_time	inside;			/* spent for that row, without the child */
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

/*
 * Is a refusal that of an UPDATE of certain columns, and not of all statements
 * that write to its table?
 */
static inline bool
WriteRefusesColumns(Refusal refusal)
{
	return refusal == REFUSED_WRITES_NO_KEY || refusal == REFUSED_PARTITIONED;
}

/* Does a trigger run before a row is written, and perhaps change it? */
extern bool WriteHasTriggers(const ResultRelInfo *table);

/*
 * Open the ring for the table's indexes, which are open; called in the query's
 * memory.
 */
extern Refusal WriteOpenKeys(WriteNode *node, const RowsBounds *bounds);

/* Return the counters, as if nothing more were written. */
extern WriteCounters WriteNodeCounters(const WriteNode *node);

/*
 * The blocks that have been read of the indexes, as the statistics count; -1 if
 * that is not known.
 */
static inline int64
WriteMisses(const WriteNode *node)
{
	const ResultRelInfo *table = WriteTable(node);

	return MissesOf(table->ri_IndexRelationDescs, table->ri_NumIndices);
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

/*
 * updated_rows.c: the rows that an UPDATE is going to write: of what its plan
 * has returned, and of what it will return.
 *
 * The plan of an UPDATE returns the columns that are set.  The others are those
 * of the old row, whose page it has just read.  If no column that an index
 * depends on gets another value, the server makes no entries, and nothing is
 * looked up.
 *
 * Where the rows of the table that the plan comes to next are known, and lie on
 * pages in shared buffers, what it will make of them can be computed:
 * - a scan of the table knows the rows that follow (coming_rows.h);
 * - a nested loop has fetched outer rows ahead, and the index scan of the table
 *	 on its inner side knows the first row that each of them matches (join.h).
 *
 * A row that is computed so is a guess.
 */

/* Are rows that an UPDATE comes to next known, as far as is seen at once? */
extern bool UpdatedRowsAreKnown(const ModifyTableState *statement);

/*
 * Prepare to compute rows of what the plan has returned; return the reason if
 * the statement will make no entries in indexes.
 */
extern Refusal UpdatedRowsPrepare(WriteNode *node);

/*
 * The row that the server will write, of what the plan has returned; NULL if it
 * will make no entries, or if that is not known.
 */
extern TupleTableSlot *UpdatedRow(WriteNode *node, TupleTableSlot *returned);

/*
 * Prepare to compute rows of what the plan will return; return the reason if
 * that cannot be done.
 */
extern Refusal UpdatedRowsOpen(WriteNode *node);

/* Go on behind the row that the plan has returned. */
extern void UpdatedRowsRestart(UpdatedRows *rows);

/*
 * The next row, whose tts_tid is that of the old row; NULL if none is known
 * now.  *has_entries: it gets entries in indexes, and these are known.
 */
extern TupleTableSlot *UpdatedRowsNext(WriteNode *node, bool *has_entries);

/*
 * The plan has returned a row that had been computed: nobody can tell when a
 * random value was made, so that it gets those by which it was looked up.
 */
extern void UpdatedRowsGive(const UpdatedRows *rows, TupleTableSlot *returned,
							const TupleTableSlot *computed);

#endif							/* PG_LOOKAHEAD_WRITE_NODE_H */
