/*-------------------------------------------------------------------------
 *
 * one_row.c
 *		A statement that writes one row into a table with several indexes.
 *
 * Nothing can be fetched ahead.  But between the moment at which the plan below
 * ModifyTable has returned the row and the one at which the server comes to the
 * first index, the leaf pages of all indexes can be asked for, so that they are
 * waited for together.  As the row has been computed by then, its plan may do
 * whatever it likes.
 *
 * One such statement is too short to find out whether that pays.  So a judge
 * stays with the session for each table, and a statement is a unit of its work.
 * Most statements find everything cached, and have to be told from the others
 * for next to nothing: nothing is done unless this process has read a block
 * since the last such statement, or the judge has begun to measure.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "exec/settings.h"
#include "executor/executor.h"
#include "read/uncount.h"
#include "utils/rel.h"
#include "write/write_node.h"

/* With how many more statements of the kind is reckoned? */
#define MORE_STATEMENTS 64

/* Fewer indexes are not looked up together. */
#define LEAST_INDEXES 2

/* What the session knows of a table, at the hash value of its OID. */
struct OneRow
{
	Oid			table;
	int			force;			/* settings when the judge began */
	int			concurrency;
	Judge		judge;
	int64		reads_seen;		/* of this process, at the last statement */
};

static OneRow one_rows[64];

/* It begins anew where settings have changed. */
OneRow *
OneRowOf(Oid table)
{
	OneRow	   *one = &one_rows[table % lengthof(one_rows)];

	if (one->table != table || one->force != lookahead_debug_force ||
		one->concurrency != effective_io_concurrency)
	{
		*one = (OneRow) {.table = table,
						 .force = lookahead_debug_force,
						 .concurrency = effective_io_concurrency,
						 .reads_seen = -1};
		JudgeInit(&one->judge, JUDGE_ONE_ROW, lookahead_debug_force);
		JudgeSetMaximum(&one->judge, 1, 0);
	}
	return one;
}

bool
OneRowIsWatched(Relation table)
{
	OneRow	   *one = OneRowOf(RelationGetRelid(table));
	int64		reads = *UsageReads(table);
	bool		has_read = one->reads_seen >= 0 && one->reads_seen != reads;

	one->reads_seen = reads;
	if (likely(!has_read && one->judge.mode == JUDGE_WATCH))
		return false;
	return list_length(RelationGetIndexList(table)) >= LEAST_INDEXES;
}

Refusal
OneRowReason(const OneRow *one)
{
	return JudgeReason(&one->judge);
}

/* The judge, unless another table has taken its place meanwhile; else NULL. */
static Judge *
one_row_judge(const WriteNode *node)
{
	return node->one->table ==
		RelationGetRelid(WriteTable(node)->ri_RelationDesc) ?
		&node->one->judge : NULL;
}

/* Ask for the leaf pages of a row, if that can be done. */
static void
one_row_look_up(WriteNode *node, Judge *judge, TupleTableSlot *row)
{
	EState	   *estate = node->base.query->estate;
	MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);
	KeysBounds	bounds;

	if (node->keys.rows == NULL && node->refusal == NOT_REFUSED)
	{
		node->refusal =
			KeysAheadBounds(WriteTable(node)->ri_RelationDesc, &bounds);
		bounds.rows = 1;
		bounds.bytes = bounds.least_bytes;
		if (node->refusal == NOT_REFUSED)
			node->refusal = WriteOpenKeys(node, &bounds);
		if (node->refusal != NOT_REFUSED)
			JudgeForbid(judge);
	}
	if (node->refusal == NOT_REFUSED)
	{
		KeysAheadAdd(&node->keys, row);
		KeysAheadRead(&node->keys);
		(void) KeysAheadNext(&node->keys);
	}
	MemoryContextSwitchTo(old);
}

/* The plan has returned a row, which the server will write now. */
static void
one_row_begin(WriteNode *node, TupleTableSlot *row)
{
	ResultRelInfo *table = WriteTable(node);
	Judge	   *judge = one_row_judge(node);
	PlanState  *child = outerPlanState(node->base.plan_state);
	const ModifyTable *plan = (const ModifyTable *) node->base.plan_state->plan;
	BufferUsage before = pgBufferUsage;

	/* that is what the server does next */
	if (table->ri_IndexRelationDescs == NULL)
		ExecOpenIndices(table, plan->onConflictAction != ONCONFLICT_NONE);
	node->has_written = true;
	node->misses_seen = WriteMisses(node);
	node->reads_seen = *node->reads;
	node->is_timed = judge != NULL && judge->timed;
	if (node->is_timed)
		INSTR_TIME_SET_CURRENT(node->started);
	if (judge != NULL && judge->mode == JUDGE_AHEAD)
		one_row_look_up(node, judge, row);
	WriteCountForNode(child, &before);
}

/* The server has written the row. */
static void
one_row_end(WriteNode *node)
{
	Judge	   *judge = one_row_judge(node);
	instr_time	now;
	int64		misses;
	int64		reads;

	node->has_written = false;
	INSTR_TIME_SET_ZERO(node->inside);
	if (node->is_timed)
	{
		INSTR_TIME_SET_CURRENT(now);
		INSTR_TIME_ACCUM_DIFF(node->inside, now, node->started);
	}
	if (node->keys.arrived != NULL)
		KeysAheadPass(&node->keys);
	misses = WriteMisses(node);
	reads = misses < 0 ? *node->reads - node->reads_seen :
		misses - node->misses_seen;
	if (judge == NULL)
		return;
	if (judge->mode != JUDGE_WATCH)
		JudgeUnit(judge, (int) reads,
				  INSTR_TIME_GET_NANOSEC(node->inside) / 1000.0, 0,
				  judge->mode == JUDGE_TRIAL && reads > 0 ?
				  MORE_STATEMENTS : 0, false);
	else if (reads > 0)
		JudgeReadSeen(judge, NULL);
	JudgeEntries(judge, 0, 0);
}

TupleTableSlot *
WriteOneRow(PlanState *child)
{
	WriteNode  *node = (WriteNode *) AheadNodeBy(child, AHEAD_AS_OUTER);
	TupleTableSlot *slot;

	if (node->has_written)
	{
		BufferUsage before = pgBufferUsage;

		one_row_end(node);
		WriteCountForNode(child, &before);
	}
	slot = node->fetch(child);
	if (!TupIsNull(slot))
		one_row_begin(node, slot);
	return slot;
}
