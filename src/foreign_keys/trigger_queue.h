/*-------------------------------------------------------------------------
 *
 * trigger_queue.h
 *		The queue of after triggers that the server runs at the end of a
 *		statement, as far as foreign keys are concerned.
 *
 * While statements write rows, the places of those are noted for which triggers
 * of foreign keys will be called.  When the server runs the queue, our function
 * stands in for the triggers' functions: it knows the rows that follow, has
 * their keys looked up, and calls the server's function.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_TRIGGER_QUEUE_H
#define PG_LOOKAHEAD_TRIGGER_QUEUE_H

#include "early/keys_ahead.h"
#include "exec/ahead_node.h"
#include "executor/execdesc.h"
#include "observe/totals.h"
#include "storage/itemptr.h"

/*
 * written_rows.c: where the rows of a table lie that statements have written,
 * in the order in which they were.
 *
 * Rows that follow each other on a page are kept together, so that a bulk load
 * needs a few bytes for each page.  When the memory is used up, further rows
 * are left out.
 */

/* Rows with adjacent line pointers of one page. */
typedef struct RowRun
{
	BlockNumber block;
	OffsetNumber first;
	uint16		n;
} RowRun;

typedef struct WrittenRows
{
	MemoryContext mcxt;
	int64		n;				/* the number of rows */
	int			nruns;
	int			size;			/* length of "runs" */
	int			max_runs;
	RowRun	   *runs;
} WrittenRows;

/* A place in the list; zero is its beginning. */
typedef struct RowPlace
{
	int64		number;			/* of the rows before it */
	int			run;
	int			row;			/* within the run */
} RowPlace;

/* bytes: what the list may take. */
extern void WrittenRowsInit(WrittenRows *rows, MemoryContext mcxt, int64 bytes);

/* Add a row, unless it is the one that was added last. */
extern void WrittenRowsAdd(WrittenRows *rows, const ItemPointerData *tid);

/* The row at a place; false if the list ends there, for now. */
extern bool WrittenRowsAt(const WrittenRows *rows, RowPlace *place,
						  ItemPointer tid);

/* Go on behind the row at a place; there must be one. */
static inline void
RowPlaceStep(RowPlace *place)
{
	place->number++;
	place->row++;
}

/*
 * Move a place to a row that is at it or follows it soon.  False if it is not
 * found; then the place stays.
 */
extern bool WrittenRowsFind(const WrittenRows *rows, RowPlace *place,
							const ItemPointerData *tid);

/*
 * constraint_keys.c: the keys that the check or the action of a foreign key
 * will look up for rows that were written: a source of keys (keys_ahead.h).
 *
 * For a new row the server looks its parent up, in the unique index that the
 * constraint names; for an old row of a parent, its children, in whichever
 * index of theirs the planner has chosen.
 *
 * No code is run but the server's own, and none that can fail.  The relations
 * are not kept open between two events, since commands of triggers that run
 * there would find them in use.
 */

/* Keys that were looked up lately, by their hash values; a power of two. */
#define RECENT_KEYS 256

/* Its fields are for constraint_keys.c to change. */
typedef struct ConstraintKeys
{
	KeySource	base;			/* is open while its relations are */
	LookupShared *shared;
	MemoryContext mcxt;

	/* of the constraint */
	Oid			oid;
	Oid			rows_table;		/* whose rows are given */
	Oid			table;			/* whose rows are looked up */
	Oid			own_index;
	int			n;
	AttrNumber	rows_columns[INDEX_MAX_KEYS];
	AttrNumber	columns[INDEX_MAX_KEYS];
	Oid			operators[INDEX_MAX_KEYS];	/* column looked up = given one */

	/* of the index, which may be none */
	Oid			index;
	int			nchanges;
	uint64		seen_changes;
	int			nkeys;
	ScanKeyData keys[INDEX_MAX_KEYS];
	AttrNumber	attributes[INDEX_MAX_KEYS]; /* of the given row, by key */
	Relation	heap_rel;		/* NULL: not open */
	Relation	index_rel;
	uint32		recent[RECENT_KEYS];
} ConstraintKeys;

/*
 * Create the state for a foreign key, in the given memory context.  is_parent:
 * rows of the parent are given, and their children are looked up.
 */
extern ConstraintKeys *ConstraintKeysCreate(LookupShared *shared,
											MemoryContext mcxt,
											Oid constraint, bool is_parent);

/*
 * Is a column of the given rows one of those in a set, which is offset as those
 * of ExecGetUpdatedCols() are?
 */
extern bool ConstraintKeysAreAmong(const ConstraintKeys *keys,
								   const Bitmapset *columns);

/*
 * Is a row with another version of it the same for the constraint?  Both are
 * rows of the table whose rows are given.
 */
extern bool ConstraintKeysEqual(ConstraintKeys *keys, TupleTableSlot *row,
								TupleTableSlot *other);

/*
 * The server has executed the constraint's query once.  index: the only index
 * that it used; InvalidOid if it used none, or several.
 */
extern void ConstraintKeysSetIndex(ConstraintKeys *keys, Oid index);

/*
 * Open the relations that are looked at; false if nothing can be looked up.
 * *changed is set if they are others than they were, so that all look-ups have
 * been forgotten.
 */
extern bool ConstraintKeysOpen(ConstraintKeys *keys, bool *changed);
extern void ConstraintKeysClose(ConstraintKeys *keys);

typedef struct QueuedRows QueuedRows;

/* What is known of the queue of one statement; zero at its beginning. */
typedef struct TriggerQueue
{
	AheadQuery *query;
	QueuedRows *rows;			/* a list: one for each table and side */
	QueuedRows *last;			/* the one that was noted in last */
	int			nrows;			/* length of the list */
	int			nrelations;		/* tables that have been looked at */
} TriggerQueue;

/* What a table is to the constraints whose triggers are called for a row. */
typedef enum KeySide
{
	KEYS_OF_CHILD = 1,			/* new rows, whose parents are checked */
	KEYS_OF_PARENT = 2			/* old rows, whose children are concerned */
} KeySide;

/*
 * For which sides has a table triggers of foreign keys that are called for what
 * a statement does, and not deferred from the start?
 */
extern int	TriggerQueueSides(const ResultRelInfo *table, CmdType operation);

/*
 * A query has written a row of a table: the queue's statement, or a cascade,
 * whose EState is not the statement's.  For an update, row and other are its
 * two versions, and nothing is noted if they have the same keys; else other is
 * NULL.
 */
extern void TriggerQueueNote(TriggerQueue *queue, EState *estate,
							 ResultRelInfo *table, KeySide side,
							 TupleTableSlot *row, TupleTableSlot *other);

/*
 * Let our function stand in for the triggers' of tables of which rows were
 * noted, as far as that has not been done.
 */
extern void TriggerQueueWatch(TriggerQueue *queue);

/* Have rows of further tables come to be concerned? */
static inline bool
TriggerQueueHasGrown(const TriggerQueue *queue)
{
	const EState *estate = queue->query->estate;

	return list_length(estate->es_opened_result_relations) +
		list_length(estate->es_tuple_routing_result_relations) +
		list_length(estate->es_trig_target_relations) != queue->nrelations;
}

/*
 * The trigger that is being called, until it has started a query.  To be saved
 * and restored around the execution of a queue.
 */
typedef struct QueuedTrigger QueuedTrigger;
extern QueuedTrigger *lookahead_called_trigger;

/* The trigger that is being called has started its query. */
extern void TriggerQueueStarts(const QueryDesc *query);

/* The queue has been run. */
extern void TriggerQueueFinish(TriggerQueue *queue);

/* What was done for all rows; and what EXPLAIN says of that. */
extern WriteCounters TriggerQueueCounters(const TriggerQueue *queue);
extern void TriggerQueueReport(const TriggerQueue *queue, AheadReport *report);

#endif							/* PG_LOOKAHEAD_TRIGGER_QUEUE_H */
