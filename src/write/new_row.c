/*-------------------------------------------------------------------------
 *
 * new_row.c
 *		The row of a table that a row of a plan will become; see new_row.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/tableam.h"
#include "compat.h"
#include "executor/executor.h"
#include "read/uncount.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "write/new_row.h"

void
NewRowPrepare(NewRow *new_row, ModifyTableState *node, const Bitmapset *needed)
{
	ModifyTable *plan = (ModifyTable *) node->ps.plan;
	Bitmapset  *computed = NULL;
	TupleDesc	desc;
	ListCell   *lc;

	*new_row = (NewRow) {.table = node->resultRelInfo};
	if (node->operation == CMD_INSERT)
		return;

	/* a copy of the descriptor has no resource owner */
	desc = CreateTupleDescCopy(
		RelationGetDescr(new_row->table->ri_RelationDesc));
	new_row->row = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	new_row->columns = linitial(plan->updateColnosLists);
	foreach(lc, new_row->columns)
		computed = bms_add_member(computed, lfirst_int(lc) -
								  FirstLowInvalidHeapAttributeNumber);
	if (!bms_is_subset(needed, computed))
		new_row->old = MakeSingleTupleTableSlot(desc, &TTSOpsBufferHeapTuple);
}

/* Fetch the old row into its slot; its visit is not counted. */
static bool
row_fetch_old(NewRow *new_row, TupleTableSlot *plan_row)
{
	Relation	rel = new_row->table->ri_RelationDesc;
	CountsBefore before = CountsNow(rel);
	bool		isnull;
	bool		found;
	Datum		tid = slot_getattr(plan_row, new_row->table->ri_RowIdAttNo,
								   &isnull);

	if (isnull)
		return false;
	found = table_tuple_fetch_row_version(rel, (ItemPointer)
										  DatumGetPointer(tid),
										  SnapshotAny, new_row->old);
	(void) UncountSince(rel, &before);
	return found;
}

TupleTableSlot *
NewRowOf(NewRow *new_row, TupleTableSlot *plan_row)
{
	TupleTableSlot *row = new_row->row;
	int			natts;
	ListCell   *lc;

	if (row == NULL)
		return plan_row;
	if (new_row->old != NULL && !row_fetch_old(new_row, plan_row))
		return NULL;
	natts = row->tts_tupleDescriptor->natts;
	ExecClearTuple(row);
	if (new_row->old != NULL)
	{
		slot_getallattrs(new_row->old);
		memcpy(row->tts_values, new_row->old->tts_values,
			   natts * sizeof(Datum));
		memcpy(row->tts_isnull, new_row->old->tts_isnull, natts * sizeof(bool));
	}
	else
		memset(row->tts_isnull, true, natts * sizeof(bool));
	foreach(lc, new_row->columns)
	{
		int			column = lfirst_int(lc) - 1;

		row->tts_values[column] =
			slot_getattr(plan_row, foreach_current_index(lc) + 1,
						 &row->tts_isnull[column]);
	}
	return ExecStoreVirtualTuple(row);
}

void
NewRowRelease(NewRow *new_row)
{
	if (new_row->old != NULL)
		ExecClearTuple(new_row->old);
}
