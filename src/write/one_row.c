/*-------------------------------------------------------------------------
 *
 * one_row.c
 *		Rows that are written one by one into a table with several indexes.
 *
 * Nothing is known ahead: an INSERT has only one row, or the plan of an UPDATE
 * does not tell what it will return.  But between the moment at which the plan
 * below ModifyTable has returned the row and the one at which the server comes
 * to the first index, the leaf pages of all indexes can be asked for, so that
 * they are waited for together.  As the row has been computed by then, its
 * plan may do whatever it likes.
 *
 * The server's own function finds the partition that a row belongs to; it
 * locks the partition, as the server will do a moment later.
 *
 * One statement of one row is too short to find out whether that pays.  So the
 * session keeps a judge for each table, and a row is a unit of its work.  Most
 * statements find everything cached, and must cost next to nothing: nothing is
 * done unless this process has read a block since the last such statement, or
 * the judge has begun to measure.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupconvert.h"
#include "compat.h"
#include "exec/judge_timing.h"
#include "exec/takeover.h"
#include "executor/execPartition.h"
#include "executor/executor.h"
#include "read/uncount.h"
#include "utils/rel.h"
#include "write/write_node.h"

/* How many more rows of this kind are assumed to follow? */
#define MORE_ROWS 64

/* Fewer indexes are not looked up together. */
#define LEAST_INDEXES 2

/* Of how many partitions are rows looked up in one statement? */
#define MAX_PARTS 64

/* By the hash value of the OID of the table. */
static OneRow one_rows[64];

/* It begins anew where settings have changed. */
OneRow *
OneRowOf(Oid table, CmdType operation)
{
	Oid			hash = table + 31 * (operation == CMD_UPDATE);
	OneRow	   *one = &one_rows[hash % lengthof(one_rows)];

	if (one->table != table || one->operation != operation ||
		one->force != lookahead_debug_force ||
		one->concurrency != effective_io_concurrency)
	{
		*one = (OneRow) {.table = table,
						 .operation = operation,
						 .force = lookahead_debug_force,
						 .concurrency = effective_io_concurrency,
						 .reads_seen = -1};
		JudgeInit(&one->judge, JUDGE_ONE_ROW, lookahead_debug_force);
		JudgeSetMaximum(&one->judge, 1, 0);
	}
	return one;
}

bool
OneRowHasIndexes(Relation table)
{
	return list_length(RelationGetIndexList(table)) >= LEAST_INDEXES;
}

/*
 * "quiet" is the count of blocks read at the last statement that was not to be
 * looked at, whatever its table.  Until this process reads another block, no
 * statement is looked at.
 */
bool
OneRowIsWatched(Relation table, CmdType operation)
{
	static int64 quiet = -1;
	int64		reads = UsageAllReads();
	OneRow	   *one;
	bool		has_read;

	if (likely(reads == quiet && lookahead_debug_force == JUDGE_MEASURES))
		return false;
	one = OneRowOf(RelationGetRelid(table), operation);
	has_read = one->reads_seen >= 0 && one->reads_seen != reads;
	one->reads_seen = reads;
	if (!has_read && one->judge.mode == JUDGE_WATCH)
	{
		quiet = reads;
		return false;
	}
	quiet = -1;
	return OneRowHasIndexes(table);
}

/* The judge, unless another table has taken its place meanwhile; else NULL. */
static Judge *
one_row_judge(const WriteNode *node)
{
	const ModifyTableState *statement =
		(const ModifyTableState *) node->base.plan_state;

	return node->one->table ==
		RelationGetRelid(statement->resultRelInfo->ri_RelationDesc) &&
		node->one->operation == statement->operation ?
		&node->one->judge : NULL;
}

/* The partition that a row belongs to, or NULL if it is not looked up. */
static WritePart *
one_row_partition(WriteNode *node, TupleTableSlot *row)
{
	ModifyTableState *statement = (ModifyTableState *) node->base.plan_state;
	EState	   *estate = node->base.query->estate;
	ResultRelInfo *table =
		ExecFindPartition(statement, statement->resultRelInfo,
						  statement->mt_partition_tuple_routing, row, estate);
	WritePart  *part = node->whole.next;
	MemoryContext old;

	if (node->part->table == table)
		return node->part;
	while (part != NULL && part->table != table)
		part = part->next;
	if (part != NULL || node->nparts == MAX_PARTS)
		return part;
	old = MemoryContextSwitchTo(estate->es_query_cxt);
	part = palloc0_object(WritePart);
	part->table = table;
	part->next = node->whole.next;
	node->whole.next = part;
	node->nparts++;
	if (WriteHasTriggers(table))
		part->refusal = REFUSED_TRIGGERS;
	if (ExecGetRootToChildMap(table, estate) != NULL)
		part->row = MakeSingleTupleTableSlot(
			CreateTupleDescCopy(RelationGetDescr(table->ri_RelationDesc)),
			&TTSOpsVirtual);
	MemoryContextSwitchTo(old);
	return part;
}

/* Open the ring; return the reason if nothing can be looked up. */
static Refusal
one_row_open(WriteNode *node)
{
	const ModifyTableState *statement =
		(const ModifyTableState *) node->base.plan_state;
	RowsBounds	bounds;
	Refusal		refusal =
		RowsAheadBounds(WriteTable(node)->ri_RelationDesc, &bounds);

	if (refusal == NOT_REFUSED && statement->operation == CMD_UPDATE)
		refusal = UpdatedRowsPrepare(node);
	bounds.rows = 1;
	bounds.bytes = bounds.least_bytes;
	return refusal == NOT_REFUSED ? WriteOpenKeys(node, &bounds) : refusal;
}

/* Ask for the leaf pages of a row, if that can be done. */
static void
one_row_look_up(WriteNode *node, Judge *judge, TupleTableSlot *row)
{
	EState	   *estate = node->base.query->estate;
	MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);

	if (node->part->keys.rows == NULL && node->part->refusal == NOT_REFUSED)
	{
		node->part->refusal = one_row_open(node);
		if (node->part == &node->whole &&
			node->part->refusal != NOT_REFUSED &&
			!WriteRefusesColumns(node->part->refusal))
			JudgeForbid(judge);
	}
	if (node->new_row != NULL && node->part->refusal == NOT_REFUSED)
		row = UpdatedRow(node, row);
	if (node->part->refusal == NOT_REFUSED && node->part->row != NULL)
		row = execute_attr_map_slot(
			ExecGetRootToChildMap(WriteTable(node),
								  node->base.query->estate)->attrMap,
			row, node->part->row);
	if (node->part->refusal == NOT_REFUSED && row != NULL)
	{
		KeysAheadAdd(&node->part->keys, row);
		KeysAheadRead(&node->part->keys);
		(void) KeysAheadNext(&node->part->keys);
	}
	MemoryContextSwitchTo(old);
}

/* WriteMisses(), or -1 if the partition of the row is not known. */
static int64
one_row_misses(const WriteNode *node)
{
	return WriteTable(node)->ri_IndexRelationDescs == NULL ? -1 :
		WriteMisses(node);
}

/* The plan has returned a row, which the server will write now. */
static void
one_row_begin(WriteNode *node, TupleTableSlot *row)
{
	Judge	   *judge = one_row_judge(node);
	PlanState  *child = outerPlanState(node->base.plan_state);
	const ModifyTable *plan = (const ModifyTable *) node->base.plan_state->plan;
	BufferUsage before = pgBufferUsage;
	bool		is_watched = judge == NULL || judge->mode == JUDGE_WATCH;
	bool		looks_up = !is_watched;

	/* what the server does next is done here */
	if (WriteIsPartitioned((ModifyTableState *) node->base.plan_state))
	{
		WritePart  *part =
			is_watched ? NULL : one_row_partition(node, row);

		node->part = part != NULL ? part : &node->whole;
		looks_up = part != NULL;
	}
	else if (node->whole.table->ri_IndexRelationDescs == NULL)
		ExecOpenIndices(node->whole.table,
						plan->onConflictAction != ONCONFLICT_NONE);
	node->misses_seen = one_row_misses(node);
	node->reads_seen = *node->reads;
	INSTR_TIME_SET_ZERO(node->started);
	if (looks_up && judge->mode == JUDGE_AHEAD)
		ProcessorsBeginUnit();
	if (!is_watched)
		INSTR_TIME_SET_CURRENT(node->started);
	if (looks_up && judge->mode == JUDGE_AHEAD)
		one_row_look_up(node, judge, row);
	WriteCountForNode(child, &before);
}

/* The server has written the row. */
static void
one_row_end(WriteNode *node)
{
	Judge	   *judge = one_row_judge(node);
	int64		misses;
	int64		reads;
	bool		busy;

	/* timed even if the judge does not want that */
	INSTR_TIME_SET_ZERO(node->inside);
	JudgeStopTiming(&node->inside, node->started);
	if (node->part->keys.arrived != NULL)
		KeysAheadPass(&node->part->keys);
	misses = one_row_misses(node);
	reads = misses < 0 ? *node->reads - node->reads_seen :
		misses - node->misses_seen;
	if (judge == NULL)
		return;
	busy = reads > 0 && judge->mode == JUDGE_AHEAD &&
		ProcessorsAreBusy(node->inside);
	if (!judge->timed)
		INSTR_TIME_SET_ZERO(node->inside);
	if (judge->mode != JUDGE_WATCH)
		JudgeTimedUnit(judge, reads, &node->inside, 0, MORE_ROWS, NULL);
	else if (reads > 0)
		JudgeReadSeen(judge, InvalidOid, 0);
	if (busy)
		JudgeProcessorsAreBusy(judge);
	JudgeEntries(judge, 0, 0);
}

TupleTableSlot *
WriteOneRow(PlanState *child)
{
	WriteNode  *node = (WriteNode *) AheadNodeBy(child, AHEAD_AS_OUTER);
	TupleTableSlot *slot;

	/* a row for which nothing was read leaves the judge in WATCH */
	if (node->has_written && (*node->reads != node->reads_seen ||
							  node->one->judge.mode != JUDGE_WATCH))
	{
		BufferUsage before = pgBufferUsage;

		one_row_end(node);
		WriteCountForNode(child, &before);
	}
	slot = node->fetch(child);
	node->reads_seen = *node->reads;
	node->has_written = !TupIsNull(slot);
	if (node->has_written)
		one_row_begin(node, slot);
	return slot;
}
