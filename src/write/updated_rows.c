/*-------------------------------------------------------------------------
 *
 * updated_rows.c
 *		The rows that an UPDATE is going to write; see write_node.h.
 *
 * What the plan will make of a row is computed by expressions of our own.  The
 * columns of the table are those of the old row, those of a nested loop's outer
 * side are those of the outer row.  As the row may be one that nobody asks for,
 * nothing is computed that may fail.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/xact.h"
#include "common/int.h"
#include "early/coming_rows.h"
#include "early/early_plan.h"
#include "early/harmless.h"
#include "early/heap_row.h"
#include "executor/executor.h"
#include "join/join.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/partcache.h"
#include "utils/rel.h"
#include "write/index_keys.h"
#include "write/write_node.h"

/*
 * How many rows one look passes over at most; and how many looks are left out
 * after one that has found no row.
 */
#define ROWS_PER_LOOK 64
#define LOOKS_WITHOUT_ROW 3

/* A column that the statement sets and an index depends on. */
typedef struct SetColumn
{
	int			from;			/* in what the plan returns, counted from 0 */
	int			to;				/* in the table, counted from 0 */
	bool		is_random;
	ExprState  *value;
	ExprState  *operand;		/* added to it, or taken from it; or NULL */
	bool		is_taken;
	Oid			types[3];		/* of both, and of the result */
} SetColumn;

struct UpdatedRows
{
	PlanState  *child;
	ExprContext *econtext;
	ExprState  *filter;
	Bitmapset  *indexed;		/* columns that indexes depend on */
	Bitmapset  *used;			/* these, and those that are computed with */
	Bitmapset  *outer_used;
	int			nset;
	SetColumn  *set;
	int			rest;			/* looks to be left out now */
	ComingRows	coming;			/* of a scan */
	BlockNumber table_size;		/* in blocks, when last looked up */
	uint64		number;			/* of a nested loop's outer row */
	TupleTableSlot *outer_row;	/* its copy is in the ring of the loop */
};

/* The scan of the table that is written to. */
static PlanState *
updated_scan(PlanState *child)
{
	return IsA(child, NestLoopState) ? innerPlanState(child) : child;
}

bool
UpdatedRowsAreKnown(const ModifyTableState *statement)
{
	const ModifyTable *plan = (const ModifyTable *) statement->ps.plan;
	PlanState  *child = outerPlanState(statement);
	PlanState  *scan = updated_scan(child);

	if (statement->operation != CMD_UPDATE || child->plan->plan_rows <= 1 ||
		list_length(plan->resultRelations) != 1)
		return false;
	if (scan == child && !ComingRowsKnow(scan))
		return false;
	if (scan != child &&
		(!IsA(scan, IndexScanState) || AheadNodeFind(child) == NULL ||
		 ((Join *) child->plan)->jointype != JOIN_INNER))
		return false;
	return ((Scan *) scan->plan)->scanrelid ==
		(Index) linitial_int(plan->resultRelations);
}

/*
 * May rows leave the partition that is written to, for another one of the
 * statement's table?  They get entries in the indexes of that one.
 */
static bool
updated_may_move(ResultRelInfo *info, EState *estate)
{
	Bitmapset  *columns = NULL;

	if (info->ri_RootResultRelInfo == NULL)
		return false;
	pull_varattnos((Node *) RelationGetPartitionQual(info->ri_RelationDesc), 1,
				   &columns);
	return bms_overlap(columns, ExecGetAllUpdatedCols(info, estate));
}

Refusal
UpdatedRowsPrepare(WriteNode *node)
{
	ResultRelInfo *info = WriteTable(node);
	Relation	table = info->ri_RelationDesc;

	if (node->new_row != NULL)
		return NOT_REFUSED;
	node->key_columns =
		RelationGetIndexAttrBitmap(table, INDEX_ATTR_BITMAP_HOT_BLOCKING);
	node->key_columns =
		bms_int_members(node->key_columns,
						ExecGetAllUpdatedCols(info, node->base.query->estate));
	if (bms_is_empty(node->key_columns))
		return REFUSED_WRITES_NO_KEY;
	if (updated_may_move(info, node->base.query->estate))
		return REFUSED_PARTITIONED;
	node->old_row = CachedRowSlot(table);
	node->new_row =
		MakeSingleTupleTableSlot(CreateTupleDescCopy(RelationGetDescr(table)),
								 &TTSOpsVirtual);
	return NOT_REFUSED;
}

/* Does a new row differ in a column that an index depends on? */
static bool
updated_changes_keys(const WriteNode *node)
{
	TupleTableSlot *old_row = node->old_row;
	TupleTableSlot *new_row = node->new_row;
	int			column = -1;

	while ((column = bms_next_member(node->key_columns, column)) >= 0)
	{
		int			i = column + FirstLowInvalidHeapAttributeNumber - 1;
		Form_pg_attribute attribute;

		if (i < 0)
			return true;
		attribute = TupleDescAttr(new_row->tts_tupleDescriptor, i);
		if (old_row->tts_isnull[i] != new_row->tts_isnull[i] ||
			(!old_row->tts_isnull[i] &&
			 !datumIsEqual(old_row->tts_values[i], new_row->tts_values[i],
						   attribute->attbyval, attribute->attlen)))
			return true;
	}
	return false;
}

TupleTableSlot *
UpdatedRow(WriteNode *node, TupleTableSlot *returned)
{
	const ModifyTable *plan = (const ModifyTable *) node->base.plan_state->plan;
	ResultRelInfo *info = WriteTable(node);
	TupleTableSlot *row = node->new_row;
	ListCell   *lc;
	bool		is_null;
	Datum		tid = ExecGetJunkAttribute(returned, info->ri_RowIdAttNo,
										   &is_null);

	if (is_null ||
		!CachedRowFetch(node->old_row, info->ri_RelationDesc,
						(ItemPointer) DatumGetPointer(tid), ROW_IS_VISIBLE) ||
		TupIsNull(node->old_row))
		return NULL;
	slot_getallattrs(node->old_row);
	ExecClearTuple(row);
	for (int i = 0; i < row->tts_tupleDescriptor->natts; i++)
	{
		row->tts_values[i] = node->old_row->tts_values[i];
		row->tts_isnull[i] = node->old_row->tts_isnull[i];
	}
	foreach(lc, (List *) linitial(plan->updateColnosLists))
	{
		int			from = foreach_current_index(lc) + 1;
		int			to = lfirst_int(lc) - 1;

		row->tts_values[to] =
			slot_getattr(returned, from, &row->tts_isnull[to]);
	}
	ExecStoreVirtualTuple(row);
	return updated_changes_keys(node) ? row : NULL;
}

/*
 * Put what the scan on the inner side of a nested loop returns in the place of
 * its columns, and columns of the outer row in that of parameters.
 */
static Node *
updated_by_scan(Node *node, void *loop)
{
	const Plan *inner = innerPlan((const Plan *) loop);
	const Var  *var = (const Var *) node;
	ListCell   *lc;

	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && var->varno == INNER_VAR)
	{
		const TargetEntry *entry =
			list_nth(inner->targetlist, var->varattno - 1);

		return updated_by_scan((Node *) entry->expr, loop);
	}
	if (IsA(node, Param) && ((Param *) node)->paramkind == PARAM_EXEC)
		foreach(lc, ((const NestLoop *) loop)->nestParams)
		{
			const NestLoopParam *param = lfirst_node(NestLoopParam, lc);

			if (param->paramno == ((Param *) node)->paramid)
				return (Node *) param->paramval;
		}
	return expression_tree_mutator(node, updated_by_scan, loop);
}

/*
 * May an expression be computed of a row that nobody may ask for?  Notes the
 * columns that it uses.
 */
static bool
updated_may_compute(WriteNode *node, UpdatedRows *rows, Node *expression)
{
	Index		scanned =
		((Scan *) updated_scan(rows->child)->plan)->scanrelid;

	pull_varattnos(expression, scanned, &rows->used);
	pull_varattnos(expression, (Index) OUTER_VAR, &rows->outer_used);
	return HarmlessExpression(expression, SettingsStay(node->base.query),
							  false, &node->params) &&
		IsInfallible(expression, node->base.query->estate);
}

/* Is one of these a system column, or the whole row? */
static bool
updated_uses_system_columns(const Bitmapset *columns)
{
	int			first = bms_next_member(columns, -1);

	return first >= 0 && first <= -FirstLowInvalidHeapAttributeNumber;
}

/* Is it an addition or a subtraction of integers, which may only overflow? */
static bool
updated_adds(const OpExpr *sum, SetColumn *column)
{
	static const Oid sums[] = {
		F_INT2PL, F_INT4PL, F_INT8PL, F_INT24PL, F_INT42PL, F_INT84PL,
		F_INT48PL, F_INT82PL, F_INT28PL
	};
	static const Oid differences[] = {
		F_INT2MI, F_INT4MI, F_INT8MI, F_INT24MI, F_INT42MI, F_INT84MI,
		F_INT48MI, F_INT82MI, F_INT28MI
	};

	if (!IsA(sum, OpExpr))
		return false;
	column->is_taken = OID_IS_AMONG(sum->opfuncid, differences);
	if (!column->is_taken && !OID_IS_AMONG(sum->opfuncid, sums))
		return false;
	column->types[0] = exprType(linitial(sum->args));
	column->types[1] = exprType(lsecond(sum->args));
	column->types[2] = sum->opresulttype;
	return true;
}

/* Prepare to compute a column; false if that cannot be done. */
static bool
updated_add_column(WriteNode *node, UpdatedRows *rows, Expr *expression,
				   int from, int to)
{
	SetColumn  *column = &rows->set[rows->nset++];
	Node	   *value = (Node *) expression;

	*column = (SetColumn) {.from = from, .to = to};
	if (IsA(rows->child, NestLoopState))
		value = updated_by_scan(value, rows->child->plan);
	if (IsA(value, FuncExpr) &&
		((FuncExpr *) value)->funcid == F_GEN_RANDOM_UUID)
		column->is_random = true;
	else if (updated_adds((OpExpr *) value, column))
	{
		Node	   *operand = lsecond(((OpExpr *) value)->args);

		if (!updated_may_compute(node, rows, operand))
			return false;
		column->operand = ExecInitExpr((Expr *) operand, NULL);
		value = linitial(((OpExpr *) value)->args);
	}
	if (!column->is_random && !updated_may_compute(node, rows, value))
		return false;
	column->value = ExecInitExpr((Expr *) value, NULL);
	return true;
}

/* Prepare the conditions that a row meets; false if that cannot be done. */
static bool
updated_add_filter(WriteNode *node, UpdatedRows *rows)
{
	Plan	   *plan = rows->child->plan;
	Plan	   *scan = updated_scan(rows->child)->plan;
	List	   *filter = list_copy(scan->qual);

	if (IsA(scan, BitmapHeapScan))
		filter = list_concat(filter, ((BitmapHeapScan *) scan)->bitmapqualorig);
	if (IsA(plan, NestLoop))
	{
		filter = list_concat(filter, ((Join *) plan)->joinqual);
		filter = list_concat(filter, plan->qual);
		filter = (List *) updated_by_scan((Node *) filter, plan);
	}
	rows->filter = ExecInitQual(filter, NULL);
	return filter == NIL || updated_may_compute(node, rows, (Node *) filter);
}

Refusal
UpdatedRowsOpen(WriteNode *node)
{
	const ModifyTable *plan = (const ModifyTable *) node->base.plan_state->plan;
	List	   *columns = linitial(plan->updateColnosLists);
	PlanState  *child = outerPlanState(node->base.plan_state);
	UpdatedRows *rows;
	ListCell   *lc;
	Refusal		refusal = UpdatedRowsPrepare(node);

	if (refusal != NOT_REFUSED)
		return refusal;

	/* subplans may set parameters for each row */
	if (child->subPlan != NIL || updated_scan(child)->subPlan != NIL)
		return REFUSED_WRITES_VALUES;
	rows = palloc0_object(UpdatedRows);
	rows->child = child;
	rows->econtext = CreateExprContext(node->base.query->estate);
	rows->indexed =
		RelationGetIndexAttrBitmap(WriteTable(node)->ri_RelationDesc,
								   INDEX_ATTR_BITMAP_HOT_BLOCKING);
	rows->used = bms_copy(rows->indexed);
	rows->set = palloc_array(SetColumn, list_length(columns));
	foreach(lc, columns)
	{
		int			from = foreach_current_index(lc);
		const TargetEntry *entry = list_nth(child->plan->targetlist, from);

		if (bms_is_member(lfirst_int(lc) - FirstLowInvalidHeapAttributeNumber,
						  rows->indexed) &&
			!updated_add_column(node, rows, entry->expr, from,
								lfirst_int(lc) - 1))
			return REFUSED_WRITES_VALUES;
	}
	if (!updated_add_filter(node, rows) ||
		updated_uses_system_columns(rows->used) ||
		updated_uses_system_columns(rows->outer_used))
		return REFUSED_WRITES_VALUES;
	if (!IsA(child, NestLoopState))
		ComingRowsInit(&rows->coming, (ScanState *) child);
	node->updated = rows;
	return NOT_REFUSED;
}

void
UpdatedRowsRestart(UpdatedRows *rows)
{
	if (IsA(rows->child, NestLoopState))
		rows->number = 0;		/* begin with the next outer row */
	else
		ComingRowsRestart(&rows->coming);
}

/*
 * Has a row been written by this command, or changed by this transaction?  It
 * is not one that the plan comes to.
 */
static bool
updated_is_ours(const WriteNode *node, HeapTupleHeader tuple)
{
	CommandId	command = node->base.query->estate->es_output_cid;

	if ((tuple->t_infomask & HEAP_XMAX_INVALID) == 0 &&
		!HEAP_XMAX_IS_LOCKED_ONLY(tuple->t_infomask) &&
		(tuple->t_infomask & HEAP_XMAX_IS_MULTI) == 0 &&
		TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetRawXmax(tuple)))
		return true;
	return (tuple->t_infomask & HEAP_COMBOCID) == 0 &&
		HeapTupleHeaderGetRawCommandId(tuple) >= command &&
		TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetRawXmin(tuple));
}

/* What visits the rows that a scan comes to: the first one is copied. */
typedef struct RowCopier
{
	RowVisitor	base;
	TupleTableSlot *slot;
} RowCopier;

static bool
updated_copy(RowVisitor *visitor, uint64 turn, HeapTuple row)
{
	TupleTableSlot *slot = ((RowCopier *) visitor)->slot;

	ExecStoreHeapTuple(heap_copytuple(row), slot, true);
	visitor->found = 1;
	return false;
}

/* Copy the next row of the scan; false if none is known now. */
static bool
updated_next_of_scan(UpdatedRows *rows, TupleTableSlot *slot)
{
	RowCopier	copier = {.base = {.visit = updated_copy}, .slot = slot};

	ComingRowsNext(&rows->coming, &copier.base);
	return copier.base.found > 0;
}

/* Copy the row that the next outer row matches, if it matches one. */
static bool
updated_next_of_join(UpdatedRows *rows, Relation table, TupleTableSlot *slot)
{
	ItemPointerData match;

	if (!JoinRowAhead(rows->child, &rows->number, &rows->outer_row, &match))
		return false;
	if (ItemPointerIsValid(&match) &&
		ItemPointerGetBlockNumber(&match) >= rows->table_size)
		rows->table_size = RelationGetNumberOfBlocks(table);
	if (ItemPointerIsValid(&match) &&
		ItemPointerGetBlockNumber(&match) < rows->table_size &&
		!CachedRowFetch(slot, table, &match, ROW_OF_CHAIN))
		return false;
	rows->number++;
	return true;
}

static int64
updated_integer(Datum value, Oid type)
{
	return type == INT8OID ? DatumGetInt64(value) :
		type == INT4OID ? DatumGetInt32(value) : DatumGetInt16(value);
}

/* Add to a value, or take from it; false if the result is out of range. */
static bool
updated_add(const SetColumn *column, Datum *value, Datum operand)
{
	Oid			type = column->types[2];
	int64		a = updated_integer(*value, column->types[0]);
	int64		b = updated_integer(operand, column->types[1]);
	int64		sum;
	bool		overflows = column->is_taken ?
		pg_sub_s64_overflow(a, b, &sum) : pg_add_s64_overflow(a, b, &sum);

	if (overflows)
		return false;
	*value = type == INT8OID ? Int64GetDatum(sum) :
		type == INT4OID ? Int32GetDatum((int32) sum) :
		Int16GetDatum((int16) sum);
	return updated_integer(*value, type) == sum;
}

/* Compute the columns of the new row; false if one is out of range. */
static bool
updated_set(UpdatedRows *rows, TupleTableSlot *row)
{
	for (int i = 0; i < rows->nset; i++)
	{
		const SetColumn *column = &rows->set[i];
		Datum	   *value = &row->tts_values[column->to];
		bool	   *is_null = &row->tts_isnull[column->to];

		*value = ExecEvalExprSwitchContext(column->value, rows->econtext,
										   is_null);
		if (column->operand != NULL && !*is_null)
		{
			Datum		operand =
				ExecEvalExprSwitchContext(column->operand, rows->econtext,
										  is_null);

			if (!*is_null && !updated_add(column, value, operand))
				return false;
		}
	}
	return true;
}

/* Will the plan come to the old row, as far as that can be told? */
static bool
updated_is_coming(WriteNode *node, UpdatedRows *rows)
{
	TupleTableSlot *old_row = node->old_row;
	HeapTuple	tuple;

	if (TupIsNull(old_row))
		return false;
	tuple = ExecFetchSlotHeapTuple(old_row, false, NULL);
	return HeapRowIsSound(old_row->tts_tupleDescriptor, tuple->t_data,
						  tuple->t_len, NULL) &&
		!updated_is_ours(node, tuple->t_data);
}

/*
 * Compute the new row of the old one; false if it is not to be looked up, and
 * clear *comes if the plan will not return it.
 */
static bool
updated_compute(WriteNode *node, UpdatedRows *rows, bool *comes)
{
	TupleTableSlot *old_row = node->old_row;
	TupleTableSlot *row = node->new_row;
	int			natts = row->tts_tupleDescriptor->natts;

	*comes = true;
	if (IndexRowIsToasted(old_row, rows->used) ||
		(rows->outer_used != NULL &&
		 IndexRowIsToasted(rows->outer_row, rows->outer_used)))
		return false;
	slot_getallattrs(old_row);
	rows->econtext->ecxt_scantuple = old_row;
	rows->econtext->ecxt_outertuple = rows->outer_row;
	*comes = ExecQual(rows->filter, rows->econtext);
	for (int i = 0; i < natts; i++)
	{
		row->tts_values[i] = old_row->tts_values[i];
		row->tts_isnull[i] = old_row->tts_isnull[i] ||
			!bms_is_member(i + 1 - FirstLowInvalidHeapAttributeNumber,
						   rows->indexed);
	}
	return *comes && updated_set(rows, row) && updated_changes_keys(node);
}

TupleTableSlot *
UpdatedRowsNext(WriteNode *node, bool *has_entries)
{
	UpdatedRows *rows = node->updated;
	Relation	table = WriteTable(node)->ri_RelationDesc;
	TupleTableSlot *row = node->new_row;

	for (int i = 0; i < ROWS_PER_LOOK && rows->rest == 0; i++)
	{
		bool		known;
		bool		comes;

		CHECK_FOR_INTERRUPTS();
		ExecClearTuple(node->old_row);
		known = IsA(rows->child, NestLoopState) ?
			updated_next_of_join(rows, table, node->old_row) :
			updated_next_of_scan(rows, node->old_row);
		if (!known)
		{
			rows->rest = LOOKS_WITHOUT_ROW;
			return NULL;
		}
		if (!updated_is_coming(node, rows))
			continue;
		ResetExprContext(rows->econtext);
		ExecClearTuple(row);
		*has_entries = updated_compute(node, rows, &comes);
		if (!comes)
			continue;
		if (*has_entries)
			ExecStoreVirtualTuple(row);
		else
			ExecStoreAllNullTuple(row);
		row->tts_tid = node->old_row->tts_tid;
		return row;
	}
	rows->rest -= rows->rest > 0;
	return NULL;
}

void
UpdatedRowsGive(const UpdatedRows *rows, TupleTableSlot *returned,
				const TupleTableSlot *computed)
{
	for (int i = 0; i < rows->nset && TTS_IS_VIRTUAL(returned); i++)
	{
		const SetColumn *column = &rows->set[i];

		if (column->is_random && !computed->tts_isnull[column->to])
			returned->tts_values[column->from] =
				computed->tts_values[column->to];
	}
}
