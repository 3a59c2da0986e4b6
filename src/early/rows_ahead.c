/*-------------------------------------------------------------------------
 *
 * rows_ahead.c
 *		Rows of a plan node that were fetched ahead: a ring; see rows_ahead.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "early/rows_ahead.h"
#include "exec/takeover.h"
#include "executor/executor.h"
#include "utils/memutils.h"

/* More rows ahead than this bring nothing. */
#define MAX_ROWS 512

/* Bytes of memory: wanted for each row ahead, and the least for all of them. */
#define BYTES_PER_ROW BLCKSZ
#define LEAST_BYTES (4 * BLCKSZ)

/* A row descriptor; a node that appends several others may return many. */
typedef struct RowKind
{
	struct RowKind *next;
	TupleDesc	desc;			/* the node's descriptor */
	TupleDesc	copy;			/* our copy, which has no resource owner */
} RowKind;

struct RowsAhead
{
	MemoryContext mcxt;			/* has the slots with their descriptors */
	RowKind    *kinds;
	Size		bytes;			/* bytes that the rows may take, roughly */
	Size		used;			/* bytes of the rows that are not handed out */
	Size		work_size;
	int			capacity;
	int			first;			/* the first row that is not handed out */
	int			n;
	RowAhead   *rows[FLEXIBLE_ARRAY_MEMBER];	/* capacity + 2; NULL: unused */
};

Refusal
RowsAheadBounds(Relation table, RowsBounds *bounds)
{
	Refusal		refusal = TakeoverTableRefusal(table);

	bounds->reads = RelationReads(table);
	bounds->rows = Min(2 * bounds->reads, MAX_ROWS);
	bounds->bytes = bounds->rows * BYTES_PER_ROW;
	bounds->least_bytes = LEAST_BYTES;
	return refusal == NOT_REFUSED && bounds->reads == 0 ?
		REFUSED_NO_CONCURRENCY : refusal;
}

RowsAhead *
RowsAheadCreate(MemoryContext mcxt, int capacity, Size bytes, Size work_size)
{
	Size		size = offsetof(RowsAhead, rows) +
		(capacity + 2) * sizeof(RowAhead *);
	RowsAhead  *rows = MemoryContextAllocZero(mcxt, size);

	rows->work_size = work_size;
	rows->mcxt = AllocSetContextCreate(mcxt, "look-ahead rows",
									   ALLOCSET_START_SMALL_SIZES);
	rows->capacity = capacity;
	rows->bytes = bytes;
	return rows;
}

int
RowsAheadSize(const RowsAhead *rows)
{
	return rows->n;
}

bool
RowsAheadHasRoom(const RowsAhead *rows)
{
	return rows->n == 0 ||
		(rows->n <= rows->capacity &&
		 rows->used < rows->bytes);
}

RowAhead *
RowsAheadAt(RowsAhead *rows, int n)
{
	Assert(n < rows->n);
	return rows->rows[(rows->first + n) % (rows->capacity + 2)];
}

/* Our copy of a row descriptor. */
static TupleDesc
rows_ahead_copy_of(RowsAhead *rows, TupleDesc desc)
{
	MemoryContext old;
	RowKind    *kind;

	for (kind = rows->kinds; kind != NULL; kind = kind->next)
		if (kind->desc == desc)
			return kind->copy;
	old = MemoryContextSwitchTo(rows->mcxt);
	kind = palloc_object(RowKind);
	kind->desc = desc;
	kind->copy = CreateTupleDescCopyConstr(desc);
	kind->next = rows->kinds;
	rows->kinds = kind;
	MemoryContextSwitchTo(old);
	return kind->copy;
}

/* Make a slot for rows like this one, unless the slot is such already. */
static void
rows_ahead_prepare(RowsAhead *rows, RowAhead *row, const TupleTableSlot *slot)
{
	MemoryContext old;

	if (row->slot != NULL && row->slot->tts_ops == slot->tts_ops &&
		row->desc == slot->tts_tupleDescriptor)
		return;
	if (row->slot != NULL)
		ExecDropSingleTupleTableSlot(row->slot);
	row->slot = NULL;
	old = MemoryContextSwitchTo(rows->mcxt);
	row->slot = MakeSingleTupleTableSlot(
		rows_ahead_copy_of(rows, slot->tts_tupleDescriptor), slot->tts_ops);
	row->desc = slot->tts_tupleDescriptor;
	MemoryContextSwitchTo(old);
}

/* Rough number of bytes that a slot and its row take. */
static Size
rows_ahead_size_of(const TupleTableSlot *slot)
{
	Size		size = sizeof(BufferHeapTupleTableSlot) +
		slot->tts_tupleDescriptor->natts * (sizeof(Datum) + sizeof(bool));

	if (TTS_IS_MINIMALTUPLE(slot))
		return size + ((MinimalTupleTableSlot *) slot)->mintuple->t_len;
	if (TTS_IS_HEAPTUPLE(slot) || TTS_IS_BUFFERTUPLE(slot))
		return size + ((HeapTupleTableSlot *) slot)->tuple->t_len;
	return size + heap_compute_data_size(slot->tts_tupleDescriptor,
										 slot->tts_values, slot->tts_isnull);
}

RowAhead *
RowsAheadAdd(RowsAhead *rows, TupleTableSlot *slot)
{
	RowAhead  **place =
		&rows->rows[(rows->first + rows->n) % (rows->capacity + 2)];
	RowAhead   *row = *place;

	Assert(rows->n <= rows->capacity);
	if (row == NULL)
	{
		row = MemoryContextAllocZero(GetMemoryChunkContext(rows),
									 MAXALIGN(sizeof(RowAhead)) +
									 rows->work_size);
		row->work = (char *) row + MAXALIGN(sizeof(RowAhead));
		*place = row;
	}
	rows_ahead_prepare(rows, row, slot);
	ExecCopySlot(row->slot, slot);
	ExecMaterializeSlot(row->slot);
	row->slot->tts_tid = slot->tts_tid;
	row->slot->tts_tableOid = slot->tts_tableOid;
	row->size = rows_ahead_size_of(row->slot);
	rows->used += row->size;
	rows->n++;					/* once nothing can fail any more */
	return row;
}

RowAhead *
RowsAheadNext(RowsAhead *rows)
{
	int			size = rows->capacity + 2;
	RowAhead   *row = RowsAheadAt(rows, 0);
	RowAhead   *before = rows->rows[(rows->first + size - 1) % size];

	/* the row that was handed out before is no longer needed */
	if (before != NULL && before->slot != NULL)
		ExecClearTuple(before->slot);
	rows->first = (rows->first + 1) % size;
	rows->n--;
	rows->used -= row->size;
	return row;
}

void
RowsAheadRelease(RowsAhead *rows)
{
	Assert(rows->n == 0);
	for (int i = 0; i < rows->capacity + 2; i++)
		if (rows->rows[i] != NULL)
			rows->rows[i]->slot = NULL;
	rows->kinds = NULL;
	MemoryContextReset(rows->mcxt);
}

void
RowsAheadDestroy(RowsAhead *rows)
{
	Assert(rows->n == 0);
	for (int i = 0; i < rows->capacity + 2; i++)
		if (rows->rows[i] != NULL)
			pfree(rows->rows[i]);
	MemoryContextDelete(rows->mcxt);
	pfree(rows);
}

void
RowsAheadForget(RowsAhead *rows)
{
	for (int i = 0; i < rows->capacity + 2; i++)
		if (rows->rows[i] != NULL && rows->rows[i]->slot != NULL)
			ExecClearTuple(rows->rows[i]->slot);
	rows->n = 0;
	rows->used = 0;
}
