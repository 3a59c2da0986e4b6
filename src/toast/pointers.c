/*-------------------------------------------------------------------------
 *
 * pointers.c
 *		The TOAST pointers of a tuple; see toast_private.h.
 *
 * The tuple may belong to a row that the query never comes to, and may be
 * damaged; see heap_row.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/heaptoast.h"
#include "access/htup_details.h"
#include "early/heap_row.h"
#include "toast/toast_private.h"
#include "varatt.h"

/* Read a pointer; false if it leads to no chunk. */
static bool
pointers_read(const char *value, ToastPointer *pointer)
{
	struct varatt_external external;
	uint32		size;

	VARATT_EXTERNAL_GET_POINTER(external, value);
	size = VARATT_EXTERNAL_GET_EXTSIZE(external);
	if (size == 0)
		return false;
	pointer->table = external.va_toastrelid;
	pointer->value = external.va_valueid;
	pointer->chunks = (size - 1) / TOAST_MAX_CHUNK_SIZE + 1;
	return true;
}

int
ToastPointersOf(const ToastPointers *wanted, HeapTupleHeader tuple, Size length)
{
	HeapRowWalk walk;
	const char *value;
	int			n = 0;

	if (length < SizeofHeapTupleHeader ||
		(tuple->t_infomask & HEAP_HASEXTERNAL) == 0)
		return 0;
	HeapRowBegin(&walk, wanted->desc, tuple, length);
	while (n < wanted->most && (value = HeapRowNextValue(&walk)) != NULL)
	{
		Form_pg_attribute att = TupleDescAttr(wanted->desc, walk.next - 1);

		if (att->attlen == -1 && VARATT_IS_1B_E(value) &&
			pointers_read(value, &wanted->array[n]) &&
			wanted->array[n].table == wanted->toast_table)
		{
			wanted->array[n].turn = wanted->turn;
			wanted->array[n].column = att->attnum;
			n++;
		}
	}
	return n;
}

int
ToastPointersAt(const ToastPointers *wanted, Page page, OffsetNumber offset)
{
	HeapTupleData row;

	return HeapRowAt(page, offset, ROW_BY_ITSELF, &row) ?
		ToastPointersOf(wanted, row.t_data, row.t_len) : 0;
}

int
ToastPointersOfSlot(TupleTableSlot *slot, uint64 turn, ToastPointer *pointers)
{
	TupleDesc	desc = slot->tts_tupleDescriptor;
	int			n = 0;

	slot_getallattrs(slot);
	for (int i = 0; i < desc->natts && n < ROW_POINTERS; i++)
	{
		const char *value = DatumGetPointer(slot->tts_values[i]);

		if (TupleDescAttr(desc, i)->attlen == -1 && !slot->tts_isnull[i] &&
			VARATT_IS_EXTERNAL_ONDISK(value) &&
			pointers_read(value, &pointers[n]))
		{
			pointers[n].turn = turn;
			pointers[n++].column = i + 1;
		}
	}
	return n;
}
