/*-------------------------------------------------------------------------
 *
 * keys_ahead.c
 *		A ring of rows whose turn will come, and the look-ups of their keys; see
 *		keys_ahead.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "early/keys_ahead.h"

void
KeysAheadOpen(KeysAhead *ahead, int max_sources, const RowsBounds *bounds)
{
	Size		work = offsetof(RowKeys, keys) +
		max_sources * sizeof(LookupKey);
	int64		place = sizeof(RowAhead) + work;
	int			rows = Max(1, Min(bounds->rows, bounds->bytes / 2 / place));

	ahead->lookups = (LookupShared) {.max_keys = rows,
									 .max_reads = bounds->reads,
									 .nlookups = 1};
	ahead->sources = palloc0_array(KeySource *, Max(1, max_sources));
	ahead->rows =
		RowsAheadCreate(CurrentMemoryContext, rows, bounds->bytes, work);
	ahead->counters.statements = 1;
	TotalsAttach(&WriteTotals);
}

RowKeys *
KeysAheadAdd(KeysAhead *ahead, TupleTableSlot *slot)
{
	int			size = RowsAheadSize(ahead->rows);
	RowKeys    *row = RowsAheadAdd(ahead->rows, slot)->work;

	for (int i = 0; i < ahead->nsources; i++)
		if (ahead->sources[i]->lookup != NULL)
			LookupBegin(ahead->sources[i]->lookup, &row->keys[i]);
		else
			row->keys[i] = (LookupKey) {.stage = LOOKUP_DONE};
	ahead->first_was_alone |= ahead->oldest_is_due && size == 0;
	size += !ahead->oldest_is_due;
	ahead->counters.max_rows = Max(ahead->counters.max_rows, (uint64) size);
	return row;
}

void
KeysAheadLeave(KeysAhead *ahead)
{
	RowKeys    *row = KeysAheadAt(ahead, RowsAheadSize(ahead->rows) - 1);

	for (int i = 0; i < ahead->nsources; i++)
		LookupStop(ahead->sources[i]->lookup, &row->keys[i]);
}

void
KeysAheadForgetSource(KeysAhead *ahead, int source)
{
	for (int i = 0; i < KeysAheadSize(ahead); i++)
		KeysAheadAt(ahead, i)->keys[source] =
			(LookupKey) {.stage = LOOKUP_DONE};
}

/*
 * Do for the keys of a row what can be done now.  Their leaf pages are not
 * waited for, unless these name rows that are needed.
 */
static void
keys_advance(KeysAhead *ahead, RowAhead *row, int pass, bool is_near)
{
	LookupKey  *keys = ((RowKeys *) row->work)->keys;

	for (int i = 0; i < ahead->nsources; i++)
	{
		KeySource  *source = ahead->sources[i];
		bool		may_wait = pass > 0 ? LookupAwaitsInnerPage(&keys[i]) :
			(source->names_rows || keys[i].place.level > 0) &&
			LookupMayWait(&ahead->lookups, &keys[i]);
		bool		wait = is_near && may_wait;

		if (source->is_open && LookupIsWanted(&keys[i], wait))
			source->advance(source, &keys[i], row->slot, wait);
	}
}

/* Start the reads that have been asked for. */
static void
keys_start_reads(KeysAhead *ahead)
{
	for (int i = 0; i < ahead->nsources; i++)
		if (ahead->sources[i]->is_open)
			LookupRead(ahead->sources[i]->lookup);
}

/*
 * The row that is due is left out if it needs one look-up only, which the
 * server makes next, and if it has been looked up behind other rows before.
 * Reads are started for a few rows at a time, so that those in flight are for
 * all pages of the next rows, and not for one page each of many rows.
 */
void
KeysAheadRead(KeysAhead *ahead)
{
	int			size = RowsAheadSize(ahead->rows);
	int			first = ahead->oldest_is_due && ahead->nsources == 1 &&
		ahead->lookups.max_keys > 1 ? 1 : 0;
	int			nopen = 0;
	int			some;

	for (int i = 0; i < ahead->nsources; i++)
		nopen += ahead->sources[i]->is_open;
	some = Max(1, ahead->lookups.max_reads / Max(1, nopen));
	for (int pass = 0; pass < 2; pass++)
	{
		for (int i = first; i < size; i++)
		{
			bool		is_due = ahead->oldest_is_due && i == 0;

			keys_advance(ahead, RowsAheadAt(ahead->rows, i), pass,
						 i <= size / 2 && (!is_due || pass > 0));
			if (i % some == 0)
				keys_start_reads(ahead);
		}
		keys_start_reads(ahead);
	}
}

/* Are reads wanted that had to wait until others end, and have some ended? */
static bool
keys_may_go_on(const KeysAhead *ahead)
{
	bool		behind = false;

	for (int i = 0; i < ahead->nsources; i++)
		behind |= ahead->sources[i]->lookup != NULL &&
			LookupIsBehind(ahead->sources[i]->lookup);
	return behind && LookupMayGoOn(&ahead->lookups, false);
}

bool
KeysAheadIsTimeToFill(const KeysAhead *ahead, int wanted, bool more)
{
	int			size = RowsAheadSize(ahead->rows);

	if (size == 0)
		return true;
	if (more)
	{
		if (size <= wanted - Min(wanted / 8, ROWS_PER_FILL))
			return true;
	}

	/* at the end, go on reading for the rows that are left */
	else if (ahead->rows_of_ring % ROWS_PER_FILL == 0)
		return true;
	return keys_may_go_on(ahead);
}

/* The oldest row leaves the ring: was it known before its turn? */
static void
keys_count_row(KeysAhead *ahead, bool has_turn)
{
	ahead->counters.rows += has_turn && !ahead->first_was_alone;
	ahead->first_was_alone = false;
}

TupleTableSlot *
KeysAheadArrive(KeysAhead *ahead)
{
	RowAhead   *row = RowsAheadNext(ahead->rows);
	LookupKey  *keys = ((RowKeys *) row->work)->keys;

	for (int i = 0; i < ahead->nsources; i++)
	{
		ahead->sources[i]->pages = keys[i].reads - keys[i].heap_reads;
		if (ahead->sources[i]->lookup != NULL)
			LookupArrive(ahead->sources[i]->lookup, &keys[i]);
	}
	keys_count_row(ahead, true);
	ahead->rows_of_ring++;
	ahead->size_sum += RowsAheadSize(ahead->rows);
	return row->slot;
}

TupleTableSlot *
KeysAheadNext(KeysAhead *ahead)
{
	ahead->arrived = KeysAheadArrive(ahead);
	for (int i = 0; i < ahead->nsources; i++)
		LookupCountBegin(ahead->sources[i]->lookup);
	return ahead->arrived;
}

void
KeysAheadPass(KeysAhead *ahead)
{
	if (ahead->arrived == NULL)
		return;
	for (int i = 0; i < ahead->nsources; i++)
	{
		(void) LookupCountEnd(ahead->sources[i]->lookup, PG_INT32_MAX);
		LookupPass(ahead->sources[i]->lookup);
	}
	ahead->arrived = NULL;
}

/* The turn of a row will not come. */
static void
keys_forget_row(KeysAhead *ahead, RowKeys *row)
{
	for (int i = 0; i < ahead->nsources; i++)
		if (ahead->sources[i]->lookup != NULL)
			LookupForget(ahead->sources[i]->lookup, &row->keys[i]);
}

void
KeysAheadSkip(KeysAhead *ahead, bool has_turn)
{
	LookupCounters *pages = &ahead->lookups.counters;
	uint64		unused = pages->blocks_unused;

	keys_count_row(ahead, has_turn);
	keys_forget_row(ahead, RowsAheadNext(ahead->rows)->work);
	if (has_turn)
		pages->blocks_unused = unused;
}

void
KeysAheadForget(KeysAhead *ahead)
{
	int			size = RowsAheadSize(ahead->rows);

	for (int i = 0; i < size; i++)
		keys_forget_row(ahead, KeysAheadAt(ahead, i));
	RowsAheadForget(ahead->rows);
	ahead->first_was_alone = false;
}

void
KeysAheadForgetSizes(KeysAhead *ahead)
{
	for (int i = 0; i < ahead->nsources; i++)
		LookupForgetSizes(ahead->sources[i]->lookup);
}

void
KeysAheadSum(const KeysAhead *ahead, WriteCounters *sum)
{
	WriteCounters counters = ahead->counters;

	counters.pages = ahead->lookups.counters;
	for (int i = 0; i < ahead->nsources; i++)
		if (ahead->sources[i]->lookup != NULL)
			counters.pages.blocks_unused +=
				LookupLeftOver(ahead->sources[i]->lookup);
	TotalsSum(&WriteTotals, sum, &counters);
	sum->statements = Min(sum->statements, 1);
}
