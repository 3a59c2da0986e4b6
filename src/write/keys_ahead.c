/*-------------------------------------------------------------------------
 *
 * keys_ahead.c
 *		Rows that are going to be written, and the look-ups of their keys; see
 *		keys_ahead.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "exec/judge.h"
#include "exec/settings.h"
#include "utils/rel.h"
#include "write/keys_ahead.h"

Refusal
KeysAheadOpen(KeysAhead *ahead, EState *estate, ExprContext *econtext,
			  Relation table, const Relation *indexes, const bool *conflicts,
			  int nindexes, const RowsBounds *bounds)
{
	Size		place = sizeof(RowAhead) + nindexes * sizeof(LookupKey);
	int			rows = Max(1, Min(bounds->rows, bounds->bytes / 2 / place));
	Refusal		refusal = REFUSED_NO_INDEXES;

	ahead->shared = (IndexShared) {
		.lookups = {.max_keys = rows,
					.max_reads = bounds->reads,
					.nlookups = 1},
		.estate = estate,
		.econtext = econtext,
		.forced = lookahead_debug_force != JUDGE_MEASURES,
	};
	ahead->indexes = palloc0_array(IndexKeys *, Max(1, nindexes));
	for (int i = 0; i < nindexes; i++)
	{
		IndexKeys  *index;

		if (indexes[i] == NULL)
			continue;
		index = IndexKeysCreate(&ahead->shared, table, indexes[i],
								conflicts[i], &refusal);
		if (index != NULL)
			ahead->indexes[ahead->nindexes++] = index;
	}
	if (ahead->nindexes == 0)
		return refusal;
	ahead->rows = RowsAheadCreate(CurrentMemoryContext, rows, bounds->bytes,
								  ahead->nindexes * sizeof(LookupKey));
	ahead->counters.statements = 1;
	TotalsAttach(&WriteTotals);
	return NOT_REFUSED;
}

void
KeysAheadAdd(KeysAhead *ahead, TupleTableSlot *slot)
{
	int			size = RowsAheadSize(ahead->rows);
	RowAhead   *row = RowsAheadAdd(ahead->rows, slot);

	for (int i = 0; i < ahead->nindexes; i++)
		LookupBegin(IndexKeysLookup(ahead->indexes[i]),
					&((LookupKey *) row->work)[i]);
	ahead->first_was_alone |= size == 0;
	ahead->counters.max_rows = Max(ahead->counters.max_rows, (uint64) size);
}

void
KeysAheadLeave(KeysAhead *ahead)
{
	LookupKey  *keys =
		RowsAheadAt(ahead->rows, RowsAheadSize(ahead->rows) - 1)->work;

	for (int i = 0; i < ahead->nindexes; i++)
		LookupStop(IndexKeysLookup(ahead->indexes[i]), &keys[i]);
}

/*
 * Do for the entries of a row what can be done now.  Their leaf pages are not
 * waited for, unless these name rows that conflict.
 */
static void
keys_advance(KeysAhead *ahead, RowAhead *row, int pass, bool is_near)
{
	LookupKey  *keys = row->work;

	for (int i = 0; i < ahead->nindexes; i++)
	{
		IndexKeys  *index = ahead->indexes[i];
		bool		may_wait = pass > 0 ? LookupAwaitsInnerPage(&keys[i]) :
			(IndexKeysMayConflict(index) || keys[i].place.level > 0) &&
			LookupMayWait(&ahead->shared.lookups, &keys[i]);
		bool		wait = is_near && may_wait;

		if (LookupIsWanted(&keys[i], wait) && IndexKeysAreActive(index))
			IndexKeysAdvance(index, &keys[i], row->slot, wait);
	}
}

/* Start the reads that have been asked for. */
static void
keys_start_reads(KeysAhead *ahead)
{
	for (int i = 0; i < ahead->nindexes; i++)
		LookupRead(IndexKeysLookup(ahead->indexes[i]));
}

/*
 * The row that is handed out next needs several pages if there are several
 * indexes, so that it takes part; and so does a row that is never behind
 * another one.  Reads are started for a few rows at a time:
 * what may be in flight is to be all pages of the next rows, and not one page
 * each of many.
 */
void
KeysAheadRead(KeysAhead *ahead)
{
	int			size = RowsAheadSize(ahead->rows);
	int			some = Max(1,
						   ahead->shared.lookups.max_reads / ahead->nindexes);
	int			first = ahead->nindexes > 1 ||
		ahead->shared.lookups.max_keys == 1 ? 0 : 1;

	for (int pass = 0; pass < 2; pass++)
	{
		for (int i = first; i < size; i++)
		{
			keys_advance(ahead, RowsAheadAt(ahead->rows, i),
						 pass, i <= size / 2 && (i > 0 || pass > 0));
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

	for (int i = 0; i < ahead->nindexes; i++)
		behind |= LookupIsBehind(IndexKeysLookup(ahead->indexes[i]));
	return behind && PageReadsInFlight(&ahead->shared.lookups) <=
		ahead->shared.lookups.max_reads / 4 * 3;
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
keys_count_row(KeysAhead *ahead, bool is_written)
{
	ahead->counters.rows += is_written && !ahead->first_was_alone;
	ahead->first_was_alone = false;
}

TupleTableSlot *
KeysAheadNext(KeysAhead *ahead)
{
	RowAhead   *row = RowsAheadNext(ahead->rows);

	for (int i = 0; i < ahead->nindexes; i++)
	{
		Lookup	   *lookup = IndexKeysLookup(ahead->indexes[i]);

		LookupArrive(lookup, &((LookupKey *) row->work)[i]);
		LookupCountBegin(lookup);
	}
	ahead->arrived = row;
	keys_count_row(ahead, true);
	ahead->rows_of_ring++;
	ahead->size_sum += RowsAheadSize(ahead->rows);
	return row->slot;
}

void
KeysAheadSkip(KeysAhead *ahead, bool is_written)
{
	LookupCounters *pages = &ahead->shared.lookups.counters;
	uint64		unused = pages->blocks_unused;
	LookupKey  *keys = RowsAheadNext(ahead->rows)->work;

	keys_count_row(ahead, is_written);
	for (int i = 0; i < ahead->nindexes; i++)
		LookupForget(IndexKeysLookup(ahead->indexes[i]), &keys[i]);
	if (is_written)
		pages->blocks_unused = unused;
}

void
KeysAheadPass(KeysAhead *ahead)
{
	if (ahead->arrived == NULL)
		return;
	for (int i = 0; i < ahead->nindexes; i++)
	{
		Lookup	   *lookup = IndexKeysLookup(ahead->indexes[i]);

		LookupCountEnd(lookup);
		LookupPass(lookup);
	}
	ahead->arrived = NULL;
}

void
KeysAheadForget(KeysAhead *ahead)
{
	int			size = RowsAheadSize(ahead->rows);

	for (int i = 0; i < size; i++)
	{
		LookupKey  *keys = RowsAheadAt(ahead->rows, i)->work;

		for (int j = 0; j < ahead->nindexes; j++)
			LookupForget(IndexKeysLookup(ahead->indexes[j]), &keys[j]);
	}
	RowsAheadForget(ahead->rows);
	ahead->first_was_alone = false;
}

void
KeysAheadNoteReads(KeysAhead *ahead)
{
	for (int i = 0; i < ahead->nindexes; i++)
		IndexKeysNoteReads(ahead->indexes[i]);
}

void
KeysAheadForgetSizes(KeysAhead *ahead)
{
	for (int i = 0; i < ahead->nindexes; i++)
		LookupForgetSizes(IndexKeysLookup(ahead->indexes[i]));
}

WriteCounters
KeysAheadTell(const KeysAhead *ahead)
{
	WriteCounters counters = ahead->counters;

	counters.pages = ahead->shared.lookups.counters;
	for (int i = 0; i < ahead->nindexes; i++)
		counters.pages.blocks_unused +=
			LookupLeftOver(IndexKeysLookup(ahead->indexes[i]));
	return counters;
}
