/*-------------------------------------------------------------------------
 *
 * foreign_keys.c
 *		Which rows the triggers of foreign keys will be called for, and what
 *		EXPLAIN says of them.
 *
 * The server has written a row when ModifyTable asks its child for the next
 * one, or at the end of the statement.  Then the slots of ModifyTable still
 * hold both versions of the row.
 *
 * The queries by which cascades change rows run no triggers by themselves: the
 * server adds theirs to the queue that is running.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "enabled.h"
#include "exec/ahead_node.h"
#include "exec/takeover.h"
#include "executor/executor.h"
#include "foreign_keys/foreign_keys.h"
#include "foreign_keys/trigger_queue.h"
#include "lookup/relations.h"
#include "utils/rel.h"

/* A ModifyTable node whose rows have triggers of foreign keys. */
typedef struct WriterNode
{
	AheadNode	base;
	TriggerQueue *queue;		/* that its rows' triggers will be in */
	TriggerQueue own;			/* this one, unless it is a cascade's */
	ExecProcNodeMtd fetch;		/* the child's own ExecProcNode */
	TupleTableSlot *fetched;	/* what it returned last */
} WriterNode;

static ExecutorStart_hook_type prev_ExecutorStart = NULL;
static ExecutorFinish_hook_type prev_ExecutorFinish = NULL;

/* The queue that is running, if anything is known of it. */
static TriggerQueue *running = NULL;

/* Does a statement leave its triggers to the queue that is running? */
static inline bool
keys_is_cascade(const EState *estate)
{
	return (estate->es_top_eflags & EXEC_FLAG_SKIP_TRIGGERS) != 0;
}

/* May there be more than one row? */
static inline bool
keys_has_many_rows(const ModifyTableState *node)
{
	return outerPlanState(node)->plan->plan_rows > 1;
}

static bool
keys_serve(PlanState *plan_state, Refusal *refusal)
{
	ModifyTableState *node = (ModifyTableState *) plan_state;
	int			sides = 0;

	if (keys_is_cascade(plan_state->state) && running == NULL)
		return false;
	for (int i = 0; i < node->mt_nrels; i++)
		sides |= TriggerQueueSides(&node->resultRelInfo[i], node->operation);

	/* of one row of a parent, many children may be cascaded to */
	if (sides == 0 ||
		(!keys_is_cascade(plan_state->state) && !keys_has_many_rows(node) &&
		 (sides & KEYS_OF_PARENT) == 0))
		return false;
	*refusal = SettingsRefusal();
	return true;
}

/* The slot of a new row that was written, if any was, or NULL. */
static TupleTableSlot *
keys_new_row(const WriterNode *node, const ResultRelInfo *table)
{
	const ModifyTableState *statement =
		(const ModifyTableState *) node->base.plan_state;
	TupleTableSlot *slots[] = {table->ri_newTupleSlot, node->fetched};

	if (statement->operation == CMD_DELETE)
		return NULL;
	for (int i = 0; i < (statement->operation == CMD_INSERT ? 2 : 1); i++)
		if (slots[i] != NULL && !TTS_EMPTY(slots[i]) &&
			ItemPointerIsValid(&slots[i]->tts_tid) &&
			OidIsValid(slots[i]->tts_tableOid))
			return slots[i];
	return NULL;
}

/* The slot of the old row that was replaced or deleted, if any was, or NULL. */
static TupleTableSlot *
keys_old_row(const WriterNode *node, const ResultRelInfo *table)
{
	const ModifyTableState *statement =
		(const ModifyTableState *) node->base.plan_state;
	TupleTableSlot *slot = table->ri_TrigOldSlot;

	if (statement->operation == CMD_INSERT || slot == NULL ||
		TTS_EMPTY(slot) || !ItemPointerIsValid(&slot->tts_tid))
		return NULL;
	return slot;
}

/* The table into which a new row of a partitioned table was put, or NULL. */
static ResultRelInfo *
keys_find_partition(const EState *estate, Oid table)
{
	ListCell   *lc;

	foreach(lc, estate->es_tuple_routing_result_relations)
	{
		ResultRelInfo *info = lfirst(lc);

		if (RelationGetRelid(info->ri_RelationDesc) == table)
			return info;
	}
	return NULL;
}

/* A row may have been written: note it. */
static void
keys_note_row(WriterNode *node)
{
	ModifyTableState *statement = (ModifyTableState *) node->base.plan_state;
	EState	   *estate = node->base.query->estate;
	ResultRelInfo *table = &statement->resultRelInfo[statement->mt_nrels > 1 ?
										 statement->mt_lastResultIndex : 0];
	TupleTableSlot *old_row = keys_old_row(node, table);
	TupleTableSlot *new_row = keys_new_row(node, table);
	bool		is_update = statement->operation == CMD_UPDATE &&
		old_row != NULL && new_row != NULL;
	int			sides;

	if (new_row != NULL &&
		new_row->tts_tableOid != RelationGetRelid(table->ri_RelationDesc))
	{
		if (statement->mt_partition_tuple_routing == NULL ||
			statement->operation != CMD_INSERT)
			return;
		table = keys_find_partition(estate, new_row->tts_tableOid);
		if (table == NULL)
			return;
	}
	sides = TriggerQueueSides(table, statement->operation);
	if (new_row != NULL && (sides & KEYS_OF_CHILD) != 0)
		TriggerQueueNote(node->queue, estate, table, KEYS_OF_CHILD, new_row,
						 is_update ? old_row : NULL);
	if (old_row != NULL && (sides & KEYS_OF_PARENT) != 0)
		TriggerQueueNote(node->queue, estate, table, KEYS_OF_PARENT, old_row,
						 is_update ? new_row : NULL);
}

/* The ExecProcNode function of the child. */
static TupleTableSlot *
keys_next_row(PlanState *child)
{
	WriterNode *node = (WriterNode *) AheadNodeBy(child, AHEAD_AS_WRITTEN);

	if (node->fetched != NULL)
		keys_note_row(node);
	node->fetched = node->fetch(child);
	if (TupIsNull(node->fetched))
		node->fetched = NULL;
	return node->fetched;
}

static void
keys_begin(AheadNode *base)
{
	WriterNode *node = (WriterNode *) base;
	PlanState  *child = outerPlanState(base->plan_state);

	node->queue = keys_is_cascade(base->query->estate) ? running : &node->own;
	node->own.query = base->query;
	for (AheadNode *other = base->next; other != NULL; other = other->next)
		if (other->methods == base->methods)
			node->queue = ((WriterNode *) other)->queue;
	if (node->queue == &node->own && !keys_has_many_rows((ModifyTableState *)
														base->plan_state))
		return;
	if (!TakeoverIsServersOwn(child) &&
		!AheadNodeIsOurs(child))
		return;
	node->fetch = child->ExecProcNodeReal;
	if (AheadNodeAddRole(base, child, AHEAD_AS_WRITTEN))
		child->ExecProcNodeReal = keys_next_row;
}

static void
keys_end(AheadNode *base)
{
	const WriterNode *node = (const WriterNode *) base;
	WriteCounters counters;

	if (node->queue != &node->own)
		return;
	counters = TriggerQueueCounters(&node->own);
	if (counters.statements > 0)
		TotalsAdd(&WriteTotals, &counters);
}

static void
keys_report(AheadNode *base, AheadReport *report)
{
	const WriterNode *node = (const WriterNode *) base;

	report->subject = "foreign keys";
	if (node->queue == &node->own)
		TriggerQueueReport(&node->own, report);
}

static const AheadMethods keys_methods = {
	.enabled = &lookahead_writes,
	.role = AHEAD_FOR_KEYS,
	.size = sizeof(WriterNode),
	.serves = keys_serve,
	.begin = keys_begin,
	.end = keys_end,
	.report = keys_report,
};

static void
keys_ExecutorStart(QueryDesc *queryDesc, int eflags)
{
	prev_ExecutorStart(queryDesc, eflags);
	if (lookahead_called_trigger != NULL)
		TriggerQueueStarts(queryDesc);

	/* the queue has come to a table that cascades have changed */
	if (running != NULL && TriggerQueueHasGrown(running))
		TriggerQueueWatch(running);
}

/* Note the last row of each ModifyTable; return the queue of the statement. */
static TriggerQueue *
keys_finish_rows(QueryDesc *queryDesc)
{
	AheadQuery *query = AheadQueryOf(queryDesc->estate);
	TriggerQueue *queue = NULL;

	for (AheadNode *base = query == NULL ? NULL : query->first; base != NULL;
		 base = base->next)
	{
		WriterNode *node = (WriterNode *) base;

		if (base->methods != &keys_methods)
			continue;
		if (node->fetched != NULL)
			keys_note_row(node);
		node->fetched = NULL;
		queue = node->queue;
	}
	return queue;
}

/*
 * The server runs the queue of a statement here.  Queries that it executes
 * meanwhile may be cascades; statements of users' triggers have queues of their
 * own.
 */
static void
keys_ExecutorFinish(QueryDesc *queryDesc)
{
	TriggerQueue *outer = running;
	QueuedTrigger *called = lookahead_called_trigger;
	TriggerQueue *queue;

	if (queryDesc->operation == CMD_SELECT &&
		!queryDesc->plannedstmt->hasModifyingCTE)
	{
		prev_ExecutorFinish(queryDesc);
		return;
	}
	queue = keys_finish_rows(queryDesc);
	if (keys_is_cascade(queryDesc->estate) || (queue == NULL && outer == NULL))
	{
		prev_ExecutorFinish(queryDesc);
		return;
	}
	running = queue;
	lookahead_called_trigger = NULL;
	PG_TRY();
	{
		if (queue != NULL)
			TriggerQueueWatch(queue);
		prev_ExecutorFinish(queryDesc);
		if (queue != NULL)
			TriggerQueueFinish(queue);
	}
	PG_FINALLY();
	{
		running = outer;
		lookahead_called_trigger = called;
	}
	PG_END_TRY();
}

void
ForeignKeysInit(void)
{
	RelationChangesInit();
	TakeoverRegister(&keys_methods);
	INSTALL_HOOK(ExecutorStart, keys_ExecutorStart);
	INSTALL_HOOK(ExecutorFinish, keys_ExecutorFinish);
}
