/*-------------------------------------------------------------------------
 *
 * written_rows.c
 *		Where the rows of a table lie that statements have written; see
 *		trigger_queue.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "foreign_keys/trigger_queue.h"
#include "utils/memutils.h"

/* How many rows may have no event between two that have one. */
#define MAX_SKIPPED 64

void
WrittenRowsInit(WrittenRows *rows, MemoryContext mcxt, int64 bytes)
{
	*rows = (WrittenRows) {
		.mcxt = mcxt,
		.max_runs = Max(16, Min(bytes, (int64) MaxAllocSize) /
						(int64) sizeof(RowRun)),
	};
}

/* Add a run; false if there is no room. */
static bool
rows_add_run(WrittenRows *rows, RowRun run)
{
	if (rows->nruns == rows->max_runs)
		return false;
	if (rows->runs == NULL)
	{
		rows->size = Min(16, rows->max_runs);
		rows->runs = MemoryContextAlloc(rows->mcxt,
										rows->size * sizeof(RowRun));
	}
	else if (rows->nruns == rows->size)
	{
		int			size = Min(2 * rows->size, rows->max_runs);

		rows->runs = repalloc_array(rows->runs, RowRun, size);
		rows->size = size;
	}
	rows->runs[rows->nruns++] = run;
	return true;
}

void
WrittenRowsAdd(WrittenRows *rows, const ItemPointerData *tid)
{
	BlockNumber block = ItemPointerGetBlockNumberNoCheck(tid);
	OffsetNumber offset = ItemPointerGetOffsetNumberNoCheck(tid);

	if (rows->nruns > 0)
	{
		RowRun	   *last = &rows->runs[rows->nruns - 1];

		if (last->block == block && offset == last->first + last->n - 1)
			return;
		if (last->block == block && offset == last->first + last->n)
		{
			last->n++;
			rows->n++;
			return;
		}
	}
	if (rows_add_run(rows, (RowRun) {.block = block, .first = offset, .n = 1}))
		rows->n++;
}

bool
WrittenRowsAt(const WrittenRows *rows, RowPlace *place, ItemPointer tid)
{
	const RowRun *run;

	while (place->run < rows->nruns &&
		   place->row == rows->runs[place->run].n)
	{
		/* rows may be added to the last run */
		if (place->run == rows->nruns - 1)
			return false;
		place->run++;
		place->row = 0;
	}
	if (place->run >= rows->nruns)
		return false;
	run = &rows->runs[place->run];
	ItemPointerSet(tid, run->block, run->first + place->row);
	return true;
}

bool
WrittenRowsFind(const WrittenRows *rows, RowPlace *place,
				const ItemPointerData *tid)
{
	RowPlace	found = *place;
	ItemPointerData at;

	for (int i = 0; i < MAX_SKIPPED && WrittenRowsAt(rows, &found, &at); i++)
	{
		if (ItemPointerEquals(&at, unconstify(ItemPointerData *, tid)))
		{
			*place = found;
			return true;
		}
		RowPlaceStep(&found);
	}
	return false;
}
