/*-------------------------------------------------------------------------
 *
 * trigger_queue.c
 *		The queue of after triggers that the server runs at the end of a
 *		statement; see trigger_queue.h.
 *
 * The server calls the triggers of one row after the other, in the order in
 * which the rows were written.  It calls the function that it finds in the
 * ri_TrigFunctions of the statement's table, and puts a trigger's own function
 * there if there is none.  So this file puts its function there before the
 * first call; no other query sees that.  A queue that runs at the end of the
 * transaction, or of COPY, has structs of tables that this file cannot find;
 * it is left to the server.
 *
 *		written rows	 turn			  next
 *		 ...  called  |	 row  |  the ring  |  not yet fetched ...
 *
 * The keys of a row are taken from the row itself, when its page is in shared
 * buffers, where it has just been written.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "compat.h"
#include "early/harmless.h"
#include "early/heap_row.h"
#include "exec/judge.h"
#include "exec/judge_timing.h"
#include "exec/takeover.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "foreign_keys/trigger_queue.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "read/page_read.h"
#include "read/uncount.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

/* What the list of written rows of a table may take of work_mem. */
#define LIST_PART 8

/* The most tables of which rows are noted in one statement. */
#define MAX_TABLES 64

/* Rows without an event of ours after which a list is given up. */
#define MAX_LOST 64

struct QueuedRows
{
	QueuedRows *next_table;
	TriggerQueue *queue;
	Oid			table;
	KeySide		side;
	bool		are_kept;		/* updates of the statement change no key */
	WrittenRows written;
	int			nconstraints;
	ConstraintKeys **constraints;
	Bitmapset  *batched;		/* those that are checked in batches */

	/* the row whose triggers are called */
	RowPlace	turn;			/* behind it */
	ItemPointerData current;
	bool		is_known;		/* it is in the list */
	int			lost;			/* consecutive rows that were not */
	bool		is_measured;	/* the judge is to be told of it */
	int64		reads;			/* blocks read for it */
	instr_time	inside;			/* spent for it */

	/* made when it first looks ahead */
	Judge		judge;
	Refusal		refusal;
	KeysAhead	keys;			/* the ring; its sources are the constraints */
	TupleTableSlot *fetched;
	RowPlace	next;			/* the row to be fetched next */
};

/* A trigger that our function stands in for. */
struct QueuedTrigger
{
	QueuedRows *rows;
	int			constraint;		/* in rows->constraints */
	PGFunction	function;		/* the server's */
	const PlannedStmt *plan;	/* executed last; only compared */
	bool		has_query;		/* it has executed one */
};

QueuedTrigger *lookahead_called_trigger = NULL;

/*
 * The side of a trigger function of foreign keys, or 0.  Users may have it
 * called by triggers of their own, for statements, too: it complains of that.
 */
static int
queue_side(const Trigger *trigger)
{
	static const Oid checks[] = {F_RI_FKEY_CHECK_INS, F_RI_FKEY_CHECK_UPD};
	static const Oid actions[] = {
		F_RI_FKEY_CASCADE_DEL, F_RI_FKEY_CASCADE_UPD, F_RI_FKEY_RESTRICT_DEL,
		F_RI_FKEY_RESTRICT_UPD, F_RI_FKEY_SETNULL_DEL, F_RI_FKEY_SETNULL_UPD,
		F_RI_FKEY_SETDEFAULT_DEL, F_RI_FKEY_SETDEFAULT_UPD,
		F_RI_FKEY_NOACTION_DEL, F_RI_FKEY_NOACTION_UPD
	};

	if (!trigger->tgisinternal)
		return 0;
	return OID_IS_AMONG(trigger->tgfoid, checks) ? KEYS_OF_CHILD :
		OID_IS_AMONG(trigger->tgfoid, actions) ? KEYS_OF_PARENT : 0;
}

/* Is a trigger called at the end of statements that do something? */
static bool
queue_is_called(const Trigger *trigger, CmdType operation)
{
	if (trigger->tgenabled == TRIGGER_DISABLED || trigger->tginitdeferred)
		return false;
	return operation == CMD_MERGE ||
		(operation == CMD_INSERT && TRIGGER_FOR_INSERT(trigger->tgtype)) ||
		(operation == CMD_UPDATE && TRIGGER_FOR_UPDATE(trigger->tgtype)) ||
		(operation == CMD_DELETE && TRIGGER_FOR_DELETE(trigger->tgtype));
}

int
TriggerQueueSides(const ResultRelInfo *table, CmdType operation)
{
	const TriggerDesc *triggers = table->ri_TrigDesc;
	int			sides = 0;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
		if (queue_is_called(&triggers->triggers[i], operation))
			sides |= queue_side(&triggers->triggers[i]);
	return sides;
}

/* The place of a constraint among those of a table's side, or -1. */
static int
queue_find_constraint(const QueuedRows *rows, Oid constraint)
{
	for (int i = 0; i < rows->nconstraints; i++)
		if (rows->constraints[i]->oid == constraint)
			return i;
	return -1;
}

/* Make the state of all constraints of a table's side. */
static void
queue_add_constraints(QueuedRows *rows, const TriggerDesc *triggers,
					  MemoryContext mcxt)
{
	rows->constraints =
		MemoryContextAlloc(mcxt, Max(1, triggers->numtriggers) *
						   sizeof(ConstraintKeys *));
	for (int i = 0; i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (queue_side(trigger) == rows->side &&
			queue_find_constraint(rows, trigger->tgconstraint) < 0)
			rows->constraints[rows->nconstraints++] =
				ConstraintKeysCreate(&rows->keys.lookups, mcxt,
									 trigger->tgconstraint,
									 rows->side == KEYS_OF_PARENT);
	}
}

static QueuedRows *
queue_find_rows(TriggerQueue *queue, Oid table, KeySide side)
{
	QueuedRows *rows = queue->last;

	if (rows != NULL && rows->table == table && rows->side == side)
		return rows;
	for (rows = queue->rows; rows != NULL; rows = rows->next_table)
		if (rows->table == table && rows->side == side)
			return queue->last = rows;
	return NULL;
}

/* Create the list of rows of a table's side; NULL if there are too many. */
static QueuedRows *
queue_add_rows(TriggerQueue *queue, const ResultRelInfo *table, KeySide side)
{
	MemoryContext mcxt = queue->query->estate->es_query_cxt;
	BufferUsage before = pgBufferUsage;
	QueuedRows *rows;

	if (queue->nrows == MAX_TABLES)
		return NULL;
	rows = MemoryContextAllocZero(mcxt, sizeof(QueuedRows));
	rows->queue = queue;
	rows->table = RelationGetRelid(table->ri_RelationDesc);
	rows->side = side;
	WrittenRowsInit(&rows->written, mcxt,
					work_mem * INT64CONST(1024) / LIST_PART);
	ItemPointerSetInvalid(&rows->current);
	JudgeInit(&rows->judge, JUDGE_WRITES, lookahead_debug_force);
	queue_add_constraints(rows, table->ri_TrigDesc, mcxt);
	UncountCatalogs(&before);
	rows->next_table = queue->rows;
	queue->rows = queue->last = rows;
	queue->nrows++;
	return rows;
}

/* Have two versions of a row the same keys for all constraints? */
static bool
queue_keys_are_same(QueuedRows *rows, TupleTableSlot *row,
					TupleTableSlot *other)
{
	for (int i = 0; i < rows->nconstraints; i++)
		if (!ConstraintKeysEqual(rows->constraints[i], row, other))
			return false;
	return true;
}

/* Does an update of a table, in a query, assign to no column of a key? */
static bool
queue_keys_are_kept(QueuedRows *rows, ResultRelInfo *table, EState *estate)
{
	Bitmapset  *columns;

	if (table->ri_TrigDesc->trig_update_before_row)
		return false;
	columns = ExecGetAllUpdatedCols(table, estate);
	for (int i = 0; i < rows->nconstraints; i++)
		if (ConstraintKeysAreAmong(rows->constraints[i], columns))
			return false;
	return true;
}

void
TriggerQueueNote(TriggerQueue *queue, EState *estate, ResultRelInfo *table,
				 KeySide side, TupleTableSlot *row, TupleTableSlot *other)
{
	QueuedRows *rows =
		queue_find_rows(queue, RelationGetRelid(table->ri_RelationDesc), side);

	if (rows == NULL)
	{
		rows = queue_add_rows(queue, table, side);
		if (rows != NULL && other != NULL)
			rows->are_kept = queue_keys_are_kept(rows, table, estate);
	}
	if (rows == NULL ||
		(other != NULL &&
		 (rows->are_kept || queue_keys_are_same(rows, row, other))))
		return;
	WrittenRowsAdd(&rows->written, &row->tts_tid);
}

/*
 * Open the relations of a constraint; false if its keys cannot be looked up.
 * Look-ups in other relations than they were have been forgotten.
 */
static bool
queue_open_constraint(QueuedRows *rows, int constraint)
{
	bool		changed = false;
	bool		open = ConstraintKeysOpen(rows->constraints[constraint],
										  &changed);

	if (changed)
		KeysAheadForgetSource(&rows->keys, constraint);
	return open;
}

/* Create the state for looking ahead; false if that must not be done. */
static bool
queue_prepare(QueuedRows *rows, Relation table)
{
	KeysAhead  *keys = &rows->keys;
	RowsBounds	bounds;
	MemoryContext old;

	if (keys->rows != NULL)
		return true;
	rows->refusal = RowsAheadBounds(table, &bounds);
	if (rows->refusal != NOT_REFUSED)
	{
		JudgeForbid(&rows->judge);
		return false;
	}
	bounds.bytes = AheadGrant(rows->queue->query, bounds.bytes,
							  bounds.least_bytes);
	old = MemoryContextSwitchTo(rows->queue->query->estate->es_query_cxt);
	rows->fetched = CachedRowSlot(table);
	KeysAheadOpen(keys, rows->nconstraints, &bounds);
	MemoryContextSwitchTo(old);
	for (int i = 0; i < rows->nconstraints; i++)
		keys->sources[keys->nsources++] =
			&rows->constraints[i]->base;
	JudgeSetMaximum(&rows->judge, keys->lookups.max_keys, 0);
	JudgeRunsToEnd(&rows->judge);
	rows->next = rows->turn;
	return true;
}

/* Fetch rows ahead, and have their keys looked up. */
static void
queue_fill(QueuedRows *rows, Relation table)
{
	KeysAhead  *keys = &rows->keys;
	int			wanted = rows->judge.mode == JUDGE_AHEAD ?
		rows->judge.distance : 0;
	ItemPointerData tid;

	if (rows->next.number < rows->turn.number)
		rows->next = rows->turn;
	if (!KeysAheadIsTimeToFill(keys, wanted, wanted > 0))
		return;
	while (RowsAheadSize(keys->rows) < wanted && RowsAheadHasRoom(keys->rows) &&
		   WrittenRowsAt(&rows->written, &rows->next, &tid) &&
		   CachedRowFetch(rows->fetched, table, &tid, ROW_IS_VISIBLE))
	{
		CHECK_FOR_INTERRUPTS();
		if (!TupIsNull(rows->fetched))
			KeysAheadAdd(keys, rows->fetched)->number = rows->next.number;
		RowPlaceStep(&rows->next);
	}
	ExecClearTuple(rows->fetched);
	KeysAheadRead(keys);
}

/*
 * The turn of a row has come: take it and those before it, which have no event,
 * from the ring.
 */
static void
queue_arrive(QueuedRows *rows, int64 number)
{
	KeysAhead  *keys = &rows->keys;

	while (KeysAheadSize(keys) > 0 && KeysAheadAt(keys, 0)->number <= number)
		if (KeysAheadAt(keys, 0)->number == number)
			(void) KeysAheadArrive(keys);
		else
			KeysAheadSkip(keys, false);
}

/* Look ahead from a row whose first trigger is called. */
static void
queue_look_ahead(QueuedRows *rows, Relation table)
{
	BufferUsage before = pgBufferUsage;

	if (!queue_prepare(rows, table))
		return;
	for (int i = 0; i < rows->nconstraints; i++)
		(void) queue_open_constraint(rows, i);
	queue_arrive(rows, rows->turn.number - 1);
	queue_fill(rows, table);
	for (int i = 0; i < rows->nconstraints; i++)
		ConstraintKeysClose(rows->constraints[i]);
	UncountCatalogs(&before);
	if (KeysAheadSize(&rows->keys) == 0)
		JudgeEntries(&rows->judge, 0, 0);
}

/* The triggers of a row have been called: tell the judge. */
static void
queue_end_row(QueuedRows *rows)
{
	JudgeTimedUnit(&rows->judge, rows->reads, &rows->inside,
				   KeysAheadSize(&rows->keys),
				   rows->written.n - rows->turn.number,
				   &rows->queue->query->reads_are_slow);
	rows->is_measured = false;
	rows->reads = 0;
}

/* The first trigger is called for a row. */
static void
queue_begin_row(QueuedRows *rows, Relation table, const ItemPointerData *tid)
{
	if (rows->is_measured)
		queue_end_row(rows);
	rows->current = *tid;
	rows->is_known = rows->lost < MAX_LOST &&
		WrittenRowsFind(&rows->written, &rows->turn, tid);
	if (!rows->is_known)
	{
		rows->lost++;
		return;
	}
	rows->lost = 0;
	RowPlaceStep(&rows->turn);
	if (rows->judge.mode >= JUDGE_AHEAD)
	{
		instr_time	start = JudgeStartTiming(&rows->judge);

		queue_look_ahead(rows, table);
		JudgeStopTiming(&rows->inside, start);
	}
}

/* Call the server's function. */
static Datum
queue_call_stock(QueuedTrigger *trigger, FunctionCallInfo fcinfo)
{
	ConstraintKeys *keys = trigger->rows->constraints[trigger->constraint];
	Datum		result;

	lookahead_called_trigger = trigger;
	result = trigger->function(fcinfo);

	/* the server checks in the constraint's own index then, with no query */
	if (lookahead_called_trigger == trigger && !trigger->has_query &&
		trigger->rows->side == KEYS_OF_CHILD)
		ConstraintKeysSetIndex(keys, keys->own_index);
	lookahead_called_trigger = NULL;
	return result;
}

/*
 * The server makes the checks of a constraint in batches, so that the pages of
 * this row may be used at a later event, or when the queue has been run.
 */
static void
queue_note_batch(QueuedRows *rows, int constraint)
{
	if (!bms_is_member(constraint, rows->batched))
	{
		MemoryContext old =
			MemoryContextSwitchTo(rows->queue->query->estate->es_query_cxt);

		rows->batched = bms_add_member(rows->batched, constraint);
		MemoryContextSwitchTo(old);
	}
	LookupCountBegin(rows->keys.sources[constraint]->lookup);
}

/* Call the server's function, and count what was read ahead for it as read. */
static Datum
queue_call_counted(QueuedTrigger *trigger, FunctionCallInfo fcinfo)
{
	QueuedRows *rows = trigger->rows;
	Lookup	   *lookup;
	Datum		result;

	if (rows->keys.rows == NULL ||
		!queue_open_constraint(rows, trigger->constraint))
		return queue_call_stock(trigger, fcinfo);
	lookup = rows->keys.sources[trigger->constraint]->lookup;
	LookupCountBegin(lookup);
	result = queue_call_stock(trigger, fcinfo);
	(void) LookupCountEnd(lookup, PG_INT32_MAX);
	if (trigger->has_query)
		LookupPass(lookup);
	else
		queue_note_batch(rows, trigger->constraint);
	ConstraintKeysClose(rows->constraints[trigger->constraint]);
	return result;
}

/* The function of a trigger. */
static Datum
queue_call(PG_FUNCTION_ARGS)
{
	QueuedTrigger *trigger = fcinfo->flinfo->fn_extra;
	QueuedRows *rows = trigger->rows;
	const TriggerData *data = (const TriggerData *) fcinfo->context;
	const TupleTableSlot *row = rows->side == KEYS_OF_CHILD &&
		TRIGGER_FIRED_BY_UPDATE(data->tg_event) ?
		data->tg_newslot : data->tg_trigslot;
	int64		before = UsageAllReads();
	instr_time	start;
	Datum		result;

	if (!ItemPointerIsValid(&rows->current) ||
		!ItemPointerEquals(&rows->current,
						   unconstify(ItemPointerData *, &row->tts_tid)))
		queue_begin_row(rows, data->tg_relation, &row->tts_tid);
	if (rows->judge.mode == JUDGE_WATCH || !rows->is_known)
	{
		result = queue_call_stock(trigger, fcinfo);
		if (rows->is_known && UsageAllReads() != before)
			JudgeReadSeen(&rows->judge, rows->constraints[0]->oid,
						  effective_io_concurrency);
		return result;
	}
	start = JudgeStartTiming(&rows->judge);
	result = rows->judge.mode == JUDGE_TRIAL ?
		queue_call_stock(trigger, fcinfo) :
		queue_call_counted(trigger, fcinfo);
	JudgeStopTiming(&rows->inside, start);
	rows->reads += UsageAllReads() - before;
	rows->is_measured = true;
	return result;
}

/* Let our function stand in for the triggers' of a table. */
static void
queue_watch_table(TriggerQueue *queue, ResultRelInfo *table)
{
	MemoryContext mcxt = queue->query->estate->es_query_cxt;
	const TriggerDesc *triggers = table->ri_TrigDesc;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];
		FmgrInfo   *function = &table->ri_TrigFunctions[i];
		int			side = queue_side(trigger);
		QueuedRows *rows = side == 0 ? NULL :
			queue_find_rows(queue, RelationGetRelid(table->ri_RelationDesc),
							side);
		int			constraint;
		QueuedTrigger *queued;

		if (rows == NULL || rows->written.n < 2)
			continue;

		/* a trigger between two cascades may have added a constraint */
		constraint = queue_find_constraint(rows, trigger->tgconstraint);
		if (constraint < 0)
			continue;
		if (!OidIsValid(function->fn_oid))
			fmgr_info_cxt(trigger->tgfoid, function, mcxt);
		if (function->fn_addr == queue_call || function->fn_extra != NULL)
			continue;
		queued = MemoryContextAllocZero(mcxt, sizeof(QueuedTrigger));
		queued->rows = rows;
		queued->constraint = constraint;
		queued->function = function->fn_addr;
		function->fn_extra = queued;
		function->fn_addr = queue_call;
	}
}

static void
queue_watch_tables(TriggerQueue *queue, List *tables)
{
	ListCell   *lc;

	foreach(lc, tables)
		queue_watch_table(queue, lfirst(lc));
	queue->nrelations += list_length(tables);
}

void
TriggerQueueWatch(TriggerQueue *queue)
{
	const EState *estate = queue->query->estate;

	queue->nrelations = 0;
	queue_watch_tables(queue, estate->es_opened_result_relations);
	queue_watch_tables(queue, estate->es_tuple_routing_result_relations);
	queue_watch_tables(queue, estate->es_trig_target_relations);
}

void
TriggerQueueFinish(TriggerQueue *queue)
{
	for (QueuedRows *rows = queue->rows; rows != NULL; rows = rows->next_table)
	{
		int			i = -1;

		queue_arrive(rows, PG_INT64_MAX);
		while ((i = bms_next_member(rows->batched, i)) >= 0)
			if (queue_open_constraint(rows, i))
			{
				/* of other relations than before, nothing is owed */
				(void) LookupCountEnd(rows->keys.sources[i]->lookup,
									  PG_INT32_MAX);
				ConstraintKeysClose(rows->constraints[i]);
			}
	}
}

/* The indexes that a plan uses, as far as they have been found. */
typedef struct UsedIndexes
{
	int			n;
	Oid			index;
} UsedIndexes;

static bool
queue_find_indexes(PlanState *plan_state, void *context)
{
	UsedIndexes *used = context;
	Oid			index = InvalidOid;

	if (plan_state == NULL)
		return false;
	if (IsA(plan_state, IndexScanState))
		index = ((IndexScan *) plan_state->plan)->indexid;
	else if (IsA(plan_state, IndexOnlyScanState))
		index = ((IndexOnlyScan *) plan_state->plan)->indexid;
	else if (IsA(plan_state, BitmapIndexScanState))
		index = ((BitmapIndexScan *) plan_state->plan)->indexid;
	if (OidIsValid(index))
	{
		used->n++;
		used->index = index;
	}
	return planstate_tree_walker(plan_state, queue_find_indexes, context);
}

void
TriggerQueueStarts(const QueryDesc *query)
{
	QueuedTrigger *trigger = lookahead_called_trigger;
	UsedIndexes used = {0};

	lookahead_called_trigger = NULL;
	trigger->has_query = true;
	if (trigger->plan == query->plannedstmt)
		return;
	trigger->plan = query->plannedstmt;
	(void) queue_find_indexes(query->planstate, &used);
	ConstraintKeysSetIndex(trigger->rows->constraints[trigger->constraint],
						   used.n == 1 ? used.index : InvalidOid);
}

WriteCounters
TriggerQueueCounters(const TriggerQueue *queue)
{
	WriteCounters all = {0};

	for (const QueuedRows *rows = queue->rows; rows != NULL;
		 rows = rows->next_table)
		KeysAheadSum(&rows->keys, &all);
	return all;
}

void
TriggerQueueReport(const TriggerQueue *queue, AheadReport *report)
{
	WriteCounters c = TriggerQueueCounters(queue);
	uint64		sum = 0;
	uint64		n = 0;
	Refusal		reason = REFUSED_NOTHING_TO_WAIT_FOR;

	for (const QueuedRows *rows = queue->rows; rows != NULL;
		 rows = rows->next_table)
	{
		sum += rows->keys.size_sum;
		n += rows->keys.rows_of_ring;
		reason = JudgeReasonOf(&rows->judge, rows->refusal,
							   rows->keys.rows != NULL);
	}
	KeysAheadReport(report, &c, (double) sum / Max(1, n), reason);
}
