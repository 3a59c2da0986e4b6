/*-------------------------------------------------------------------------
 *
 * plan_rows.c
 *		The next row of the plan below a ModifyTable node, fetched ahead or not.
 *
 * While the node is only watched, all that is added for a row is to compare the
 * count of blocks that this backend has read with its last value.
 *
 * ModifyTable asks for all rows, so that rows may be fetched ahead if the plan
 * is harmless (harmless.h), and if nothing else that can be noticed happens
 * between two rows: write.c looks for triggers.
 *
 * Those of an UPDATE are not fetched, but computed ahead (updated_rows.c).  In
 * the ring is what the plan will probably return; each row that it does return
 * is looked for there by the TID of the old row.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "compat.h"
#include "early/early_plan.h"
#include "exec/ahead_node.h"
#include "exec/judge_timing.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "read/uncount.h"
#include "utils/rel.h"
#include "write/write_node.h"

/* Rows that are taken into account when it is asked what is to be won. */
#define MANY_ROWS 512

/* Rows that are not found in the ring, before it is filled anew. */
#define MAX_STRAYS 16

/* Fetch a row from the child, whose time does not count. */
static TupleTableSlot *
rows_fetch(WriteNode *node, PlanState *child)
{
	TupleTableSlot *slot;

	JudgeStopTiming(&node->inside, node->started);
	slot = node->fetch(child);
	node->started = JudgeStartTiming(&node->judge);
	return slot;
}

/* Is this an UPDATE? */
static inline bool
rows_are_updated(const WriteNode *node)
{
	return ((ModifyTableState *) node->base.plan_state)->operation ==
		CMD_UPDATE;
}

/* Create the node's state; return the reason why it must not look ahead. */
static Refusal
rows_refusal(WriteNode *node)
{
	PlanState  *child = outerPlanState(node->base.plan_state);
	RowsBounds	bounds;
	Refusal		refusal;

	refusal = RowsAheadBounds(WriteTable(node)->ri_RelationDesc, &bounds);
	if (refusal != NOT_REFUSED)
		return refusal;
	if (IsolationIsSerializable())
		return REFUSED_SERIALIZABLE;
	if (RowsCertain(&node->base) < PG_INT64_MAX)
		return REFUSED_NOT_ALL_ROWS;
	refusal = rows_are_updated(node) ? UpdatedRowsOpen(node) :
		HarmlessPlanRefusal(child, false, false, &node->params);
	if (refusal != NOT_REFUSED)
		return refusal;
	bounds.bytes = AheadGrant(node->base.query, bounds.bytes,
							  bounds.least_bytes);
	refusal = WriteOpenKeys(node, &bounds);
	if (refusal != NOT_REFUSED)
		return refusal;
	JudgeSetMaximum(&node->judge, node->part->keys.lookups.max_keys, 0);
	JudgeRunsToEnd(&node->judge);
	return NOT_REFUSED;
}

/*
 * No row of an UPDATE is known before its turn: look it up then, if there are
 * indexes that can be looked up together.
 */
static void
rows_go_one_by_one(WriteNode *node)
{
	PlanState  *child = outerPlanState(node->base.plan_state);
	Relation	table = WriteTable(node)->ri_RelationDesc;

	if (child->ExecProcNodeReal != WriteNextRow || !OneRowHasIndexes(table) ||
		WriteRefusesColumns(node->part->refusal))
		return;
	node->one = OneRowOf(RelationGetRelid(table), CMD_UPDATE);
	node->row_by_row = node->part->refusal;
	node->part->refusal = NOT_REFUSED;
	node->updated = NULL;
	ExecSetExecProcNode(child, WriteOneRow);
}

/* Create the state for looking ahead; false if the node must not look ahead. */
static bool
rows_open(WriteNode *node)
{
	BufferUsage before = pgBufferUsage;
	MemoryContext old;

	if (node->part->keys.rows != NULL)
		return true;
	old = MemoryContextSwitchTo(node->base.query->estate->es_query_cxt);
	node->part->refusal = rows_refusal(node);
	MemoryContextSwitchTo(old);
	UncountCatalogs(&before);
	if (node->part->refusal != NOT_REFUSED)
	{
		JudgeForbid(&node->judge);
		if (rows_are_updated(node))
			rows_go_one_by_one(node);
		return false;
	}
	return true;
}

/*
 * Fetch rows ahead, and one in any case; none if look-ahead is ending.  Those
 * of an UPDATE are computed, as far as they are known.
 */
static void
rows_fill(WriteNode *node, PlanState *child)
{
	RowsAhead  *rows = node->part->keys.rows;
	int			size;
	int			wanted = 0;
	BufferUsage before;

	if (node->judge.mode == JUDGE_AHEAD &&
		ParamsAreKnown(node->base.query->estate, node->params))
		wanted = node->judge.distance;
	if (!KeysAheadIsTimeToFill(&node->part->keys, wanted,
							   node->judge.mode == JUDGE_AHEAD &&
							   !node->child_ended))
		return;
	while (node->judge.mode == JUDGE_AHEAD && !node->child_ended &&
		   (wanted > 0 || node->updated == NULL) &&
		   (size = RowsAheadSize(rows)) < wanted + 1 &&
		   RowsAheadHasRoom(rows))
	{
		TupleTableSlot *slot;
		bool		has_entries = true;

		CHECK_FOR_INTERRUPTS();
		if (node->updated != NULL)
			slot = UpdatedRowsNext(node, &has_entries);
		else
		{
			node->base.rows_held = size;
			slot = rows_fetch(node, child);
			node->child_ended = TupIsNull(slot);
		}
		if (TupIsNull(slot))
			break;
		KeysAheadAdd(&node->part->keys, slot);
		if (!has_entries)
			KeysAheadLeave(&node->part->keys);
	}
	before = pgBufferUsage;
	KeysAheadRead(&node->part->keys);
	WriteCountForNode(child, &before);
	if (RowsAheadSize(rows) == 1 && wanted > 0 && !RowsAheadHasRoom(rows))
		JudgeNoRoom(&node->judge);
}

/*
 * The next row in AHEAD or ENDING.  *known is false if there is none ahead any
 * more, and none is to be fetched ahead.
 */
static TupleTableSlot *
rows_next_of_ring(WriteNode *node, PlanState *child, bool *known)
{
	RowsAhead  *rows = node->part->keys.rows;
	TupleTableSlot *slot;

	*known = true;
	rows_fill(node, child);
	if (RowsAheadSize(rows) == 0)
	{
		*known = node->child_ended;
		node->base.rows_held = 0;
		if (*known)
			RowsAheadRelease(rows);
		return NULL;
	}
	slot = KeysAheadNext(&node->part->keys);
	node->base.rows_held = RowsAheadSize(rows);
	return slot;
}

/*
 * Make the row of an UPDATE that the plan has returned the oldest one of the
 * ring.  Rows before it do not come any more.  False if it is not there.
 */
static bool
rows_find_updated(WriteNode *node, TupleTableSlot *returned)
{
	KeysAhead  *keys = &node->part->keys;
	bool		is_null;
	Datum		tid = ExecGetJunkAttribute(returned,
										   WriteTable(node)->ri_RowIdAttNo,
										   &is_null);
	int			size = RowsAheadSize(keys->rows);
	int			i = 0;

	while (i < size && !is_null &&
		   !ItemPointerEquals(&RowsAheadAt(keys->rows, i)->slot->tts_tid,
							  (ItemPointer) DatumGetPointer(tid)))
		i++;
	if (i < size && !is_null)
	{
		node->strays = 0;
		for (; i > 0; i--)
			KeysAheadSkip(keys, false);
		return true;
	}
	if (node->strays++ >= MAX_STRAYS || node->judge.mode != JUDGE_AHEAD)
		KeysAheadForget(keys);
	return false;
}

/*
 * The next row of an UPDATE in AHEAD or ENDING, which the plan returns in its
 * turn.  If it is not in the ring, though nothing else is, it is looked up by
 * itself.
 */
static TupleTableSlot *
rows_next_updated(WriteNode *node, PlanState *child)
{
	KeysAhead  *keys = &node->part->keys;
	TupleTableSlot *slot = rows_fetch(node, child);
	TupleTableSlot *row;
	bool		is_ahead;

	if (TupIsNull(slot))
	{
		KeysAheadForget(keys);
		return slot;
	}
	is_ahead = rows_find_updated(node, slot);
	if (RowsAheadSize(keys->rows) == 0)
	{
		node->strays = 0;
		UpdatedRowsRestart(node->updated);
		row = node->judge.mode == JUDGE_AHEAD ? UpdatedRow(node, slot) : NULL;
		is_ahead = row != NULL;
		if (is_ahead)
			KeysAheadAdd(keys, row);
	}
	rows_fill(node, child);
	if (is_ahead)
		UpdatedRowsGive(node->updated, slot, KeysAheadNext(keys));
	else if (RowsAheadSize(keys->rows) == 0)
		JudgeEntries(&node->judge, 0, 0);
	return slot;
}

/* Tell the judge what was read for the row that was written last. */
static void
rows_count_row(WriteNode *node, PlanState *child)
{
	Judge	   *judge = &node->judge;
	int64		reads = *node->reads - node->reads_seen;
	int64		misses = WriteMisses(node);
	bool		was_read = misses < 0 ? reads != 0 :
		misses != node->misses_seen;

	IndexKeysNoteReads(&node->part->keys);
	if (judge->mode == JUDGE_WATCH)
		JudgeReadSeen(judge,
					  RelationGetRelid(WriteTable(node)->ri_RelationDesc),
					  effective_io_concurrency);
	else
		JudgeTimedUnit(judge, was_read ? Max(1, reads) : 0, &node->inside,
					   KeysAheadSize(&node->part->keys),
					   (int64) Min(MANY_ROWS, child->plan->plan_rows),
					   &node->base.query->reads_are_slow);
	INSTR_TIME_SET_ZERO(node->inside);
}

/* Return the next row, where the judge has something to see or to do. */
static pg_noinline TupleTableSlot *
rows_next(WriteNode *node, PlanState *child)
{
	TupleTableSlot *slot = NULL;
	bool		known = false;

	JudgeStopTiming(&node->inside, node->started);
	if (node->part->keys.arrived != NULL)
	{
		BufferUsage before = pgBufferUsage;

		KeysAheadPass(&node->part->keys);
		WriteCountForNode(child, &before);
	}
	if (node->has_written)
		rows_count_row(node, child);
	node->started = JudgeStartTiming(&node->judge);

	/* the server opens the indexes when it has got the first row */
	if (node->judge.mode >= JUDGE_AHEAD && node->has_written &&
		rows_open(node))
	{
		known = node->updated != NULL;
		slot = known ? rows_next_updated(node, child) :
			rows_next_of_ring(node, child, &known);
		if (!known)
			JudgeEntries(&node->judge, 0, 0);
	}
	if (!known)
		slot = rows_fetch(node, child);
	node->has_written = true;
	node->reads_seen = *node->reads;
	node->misses_seen = WriteMisses(node);
	return slot;
}

TupleTableSlot *
WriteNextRow(PlanState *child)
{
	WriteNode  *node = (WriteNode *) AheadNodeBy(child, AHEAD_AS_OUTER);
	TupleTableSlot *slot;

	if (unlikely(node->judge.mode != JUDGE_WATCH ||
				 *node->reads != node->reads_seen))
		return rows_next(node, child);
	slot = node->fetch(child);
	node->reads_seen = *node->reads;
	node->has_written = true;
	return slot;
}
