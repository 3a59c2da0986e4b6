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

#include "exec/ahead_node.h"
#include "executor/execdesc.h"
#include "foreign_keys/constraint_keys.h"
#include "observe/totals.h"

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

/* What was done for all rows; and why nothing was, if so. */
extern WriteCounters TriggerQueueTell(const TriggerQueue *queue);
extern Refusal TriggerQueueReason(const TriggerQueue *queue);

/* The mean number of rows ahead. */
extern double TriggerQueueMean(const TriggerQueue *queue);

/* Wait for all reads. */
extern void TriggerQueueWait(const TriggerQueue *queue);

#endif							/* PG_LOOKAHEAD_TRIGGER_QUEUE_H */
