/*-------------------------------------------------------------------------
 *
 * heap_copy.c
 *		A table access method that is not heap, but does what heap does.
 *
 * A table of it has to be made as heap and renamed to it in pg_class: heap
 * builds indexes only on tables whose methods are heap's own, by address.
 *
 * The other handler's method has slots of a kind of its own, from which values
 * are taken when they are asked for, and says of each row that it is scanned.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tableam.h"
#include "executor/tuptable.h"
#include "fmgr.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(heap_copy_handler);

Datum
heap_copy_handler(PG_FUNCTION_ARGS)
{
	static TableAmRoutine copy;

	copy = *GetHeapamTableAmRoutine();
	PG_RETURN_POINTER(&copy);
}

PG_FUNCTION_INFO_V1(heap_slots_handler);

static TupleTableSlotOps heap_slots;

static const TupleTableSlotOps *
heap_slots_callbacks(Relation rel)
{
	return &heap_slots;
}

/* Store a copy of a row of another slot. */
static void
heap_slots_copy(TupleTableSlot *slot, TupleTableSlot *from)
{
	HeapTupleTableSlot *ours = (HeapTupleTableSlot *) slot;
	MemoryContext old = MemoryContextSwitchTo(slot->tts_mcxt);

	ExecClearTuple(slot);
	ours->tuple = ExecCopySlotHeapTuple(from);
	ours->off = 0;
	slot->tts_flags = TTS_FLAG_SHOULDFREE;
	slot->tts_tid = ours->tuple->t_self;
	MemoryContextSwitchTo(old);
}

static bool
heap_slots_next(TableScanDesc scan, ScanDirection direction,
				TupleTableSlot *slot)
{
	TupleTableSlot *row = MakeSingleTupleTableSlot(slot->tts_tupleDescriptor,
												   &TTSOpsBufferHeapTuple);
	bool		found = GetHeapamTableAmRoutine()->scan_getnextslot(
		scan, direction, row);

	ExecClearTuple(slot);
	if (found)
	{
		heap_slots_copy(slot, row);
		elog(NOTICE, "scanned");
	}
	ExecDropSingleTupleTableSlot(row);
	return found;
}

Datum
heap_slots_handler(PG_FUNCTION_ARGS)
{
	static TableAmRoutine copy;

	heap_slots = TTSOpsHeapTuple;
	heap_slots.copyslot = heap_slots_copy;
	copy = *GetHeapamTableAmRoutine();
	copy.slot_callbacks = heap_slots_callbacks;
	copy.scan_getnextslot = heap_slots_next;
	PG_RETURN_POINTER(&copy);
}
