/*-------------------------------------------------------------------------
 *
 * values_ahead.c
 *		The TOASTed values that one scan will come to, and the reads of their
 *		chunks; see toast_private.h.
 *
 * Values stand in a ring in the order of their rows.  Those that will probably
 * be fetched (column.c) are looked up in parts of PART_CHUNKS chunks, so that
 * what is ahead is bounded by blocks and not by values: a large value is read
 * as far as the distance allows, and goes on while the server fetches it.
 *
 * The judge (exec/judge.h) decides when that is done, and how far.  Its unit of
 * work is a value that the server fetches, or CHUNKS_PER_LOOK chunks of a long
 * one.  While it only watches, a fetch is looked at only if this process has
 * read a block since the last one.
 *
 *		passed	  next			  tail		of the ring of values
 *		  |  parts  |  known, and   |
 *		  |  begun  |  not begun	|
 *
 * Invariants:
 * - A part is in the ring of parts from LookupBegin() until its turn has come
 *	 or its value has passed.
 * - No relation is looked at but in a fetch, where the server has it locked.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heaptoast.h"
#include "access/stratnum.h"
#include "compat.h"
#include "early/coming_rows.h"
#include "exec/ahead_node.h"
#include "exec/judge_timing.h"
#include "exec/takeover.h"
#include "lookup/lookup.h"
#include "miscadmin.h"
#include "read/uncount.h"
#include "storage/bufmgr.h"
#include "toast/toast_private.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

/* The chunks of a part: they fill as many blocks as one look-up reads. */
#define PART_CHUNKS (LOOKUP_MAX_BLOCKS * EXTERN_TUPLES_PER_PAGE)

/* A power of two. */
#define MAX_VALUES 128

/* The parts ahead; half of them may be of the value that is fetched. */
#define MAX_PARTS 128

/* The values known ahead while none is read ahead. */
#define VALUES_WATCHED 16

/* Begin at least these parts at once: reads of neighbours are combined. */
#define FILL_PARTS 16

/* Chunks of a large value that are fetched before it is looked further. */
#define CHUNKS_PER_LOOK 16

/*
 * If only one of two reads can be saved, a trial does not pay for reads that
 * take less than this.
 */
#define ONE_OF_TWO_US 200

/* How often the relations of a scan may turn out to be others. */
#define MAX_RELATIONS 8

/* Takes the pointers of rows that come. */
typedef struct PointerVisitor
{
	RowVisitor	base;
	ToastPointers wanted;
} PointerVisitor;

typedef struct Value
{
	ToastPointer pointer;
	int32		next_chunk;		/* of the part to begin next */
	bool		begun;			/* a part has been */
	bool		fetched;
} Value;

typedef struct Part
{
	LookupKey	key;
	Oid			value;
	int32		first;			/* its chunks */
	int32		last;
	int32		from;			/* of these, the first to be looked up */
	bool		over;			/* its turn has come, or will not */
} Part;

struct ValuesAhead
{
	AheadNode  *node;
	ComingRows	rows;
	RowsAbove  *above;			/* if the node is not a scan, its rows */
	Oid			toast_table;
	Judge		judge;
	int64		reads_seen;		/* of all blocks, at the last look in WATCH */
	ToastColumn *columns;		/* by attribute number - 1 */
	ToastCounters counters;
	LookupShared shared;

	/* a ring: positions only grow, and are taken modulo the size */
	uint32		passed;			/* values before it have passed */
	uint32		next;			/* the first with parts to begin */
	uint32		tail;
	int			nbegun;			/* values with parts that have not passed */
	int			nwanted;		/* columns of which values are wanted */
	uint64		turn;			/* of the value that was fetched last */
	Value		values[MAX_VALUES];

	/* those ahead in the order in which they began, then unused ones */
	Part	   *parts[MAX_PARTS];
	int			nparts;			/* of those ahead */

	/* of the TOAST table and its index, as they were last */
	Lookup	   *lookup;			/* NULL: none yet, or they have changed */
	int			nrelations;
	Relation	table;
	Relation	index;
	Oid			index_oid;
	RelFileLocator table_file;
	RelFileLocator index_file;

	/* the fetch that is going on */
	ToastFetch	fetch;
	uint32		position;		/* of its value */
	int32		chunk;			/* the one that the server reads */
	int			reads;			/* made ahead, of the parts that arrived */
	bool		counting;		/* LookupCountEnd() has to follow */
	instr_time	start;
	CountsBefore table_before;
	CountsBefore index_before;
};

static inline Value *
values_at(ValuesAhead *ahead, uint32 position)
{
	return &ahead->values[position % MAX_VALUES];
}

/* The descriptor of the rows of the node. */
static TupleDesc
values_desc_of(const ValuesAhead *ahead)
{
	return ahead->above != NULL ? ahead->node->plan_state->ps_ResultTupleDesc :
		RelationGetDescr(ahead->rows.scan->ss_currentRelation);
}

ValuesAhead *
ValuesAheadCreate(AheadNode *node, Relation toast_table, RowsAbove *above)
{
	MemoryContext mcxt = node->query->estate->es_query_cxt;
	int			reads = RelationReads(toast_table);
	int			most = 2 * reads;
	ValuesAhead *ahead = MemoryContextAllocZero(mcxt, sizeof(ValuesAhead));

	ahead->node = node;
	ahead->above = above;
	if (above == NULL)
		ComingRowsInit(&ahead->rows, (ScanState *) node->plan_state);
	ahead->toast_table = RelationGetRelid(toast_table);
	ahead->columns =
		MemoryContextAllocZero(mcxt,
							   values_desc_of(ahead)->natts *
							   sizeof(ToastColumn));

	/* a part may take a whole read, and a small cache is not to be flooded */
	most = Min(most, NBuffers / (16 * LOOKUP_MAX_BLOCKS));
	ahead->shared.max_keys = Max(1, Min(most, MAX_PARTS / 2));
	ahead->shared.max_reads = reads;
	ahead->shared.nlookups = 1;
	JudgeInit(&ahead->judge, JUDGE_VALUES, lookahead_debug_force);
	JudgeSetMaximum(&ahead->judge, ahead->shared.max_keys, 0);
	if (reads == 0)
		JudgeForbid(&ahead->judge);
	return ahead;
}

/* Remove the parts that are over. */
static void
values_remove_parts(ValuesAhead *ahead)
{
	int			n = 0;

	for (int i = 0; i < ahead->nparts; i++)
	{
		Part	   *part = ahead->parts[i];

		if (part->over)
			continue;
		ahead->parts[i] = ahead->parts[n];
		ahead->parts[n++] = part;
	}
	ahead->nparts = n;
}

/*
 * The turn of the parts of a value has come, or it will not come.
 *		last		of the parts that begin behind this chunk, it has not come
 */
static void
values_end_parts(ValuesAhead *ahead, Oid value, int32 last, bool comes)
{
	for (int i = 0; i < ahead->nparts; i++)
	{
		Part	   *part = ahead->parts[i];

		if (part->value != value || part->first > last)
			continue;
		part->over = true;
		if (!comes)
		{
			LookupForget(ahead->lookup, &part->key);
			continue;
		}
		ahead->reads += part->key.reads;
		LookupArrive(ahead->lookup, &part->key);
	}
	values_remove_parts(ahead);
}

/* Values of rows before this turn have passed. */
static void
values_pass(ValuesAhead *ahead, uint64 turn)
{
	for (; ahead->passed != ahead->tail; ahead->passed++)
	{
		Value	   *value = values_at(ahead, ahead->passed);
		ToastColumn *column = &ahead->columns[value->pointer.column - 1];
		bool		was_wanted = ToastColumnIsWanted(column);

		if (value->pointer.turn >= turn)
			break;
		ToastColumnPassed(column, value->fetched);
		ahead->nwanted += ToastColumnIsWanted(column) - was_wanted;

		/* values that were passed over are wanted now */
		if (!was_wanted && ToastColumnIsWanted(column))
			ahead->next = ahead->passed;
		ahead->nbegun -= value->begun;
		if (value->begun && !value->fetched)
		{
			values_end_parts(ahead, value->pointer.value, PG_INT32_MAX, false);
			ahead->counters.values_unused++;
		}
		if (ahead->next == ahead->passed)
			ahead->next++;
	}
}

/* Forget all values, and all that is known of the relations. */
static void
values_forget_all(ValuesAhead *ahead)
{
	for (int i = 0; i < ahead->nparts; i++)
		LookupForget(ahead->lookup, &ahead->parts[i]->key);
	ahead->nparts = 0;
	ahead->passed = ahead->next = ahead->tail;
	ahead->nbegun = 0;
}

/* The position of a value in the ring, among those that have not passed. */
static bool
values_find(ValuesAhead *ahead, Oid value, uint32 *position)
{
	for (uint32 i = ahead->passed; i != ahead->tail; i++)
		if (values_at(ahead, i)->pointer.value == value)
		{
			*position = i;
			return true;
		}
	return false;
}

/* Add a value to the ring, which is in the order of turns. */
static void
values_add(ValuesAhead *ahead, const ToastPointer *pointer)
{
	uint32		position = ahead->tail++;

	while (position != ahead->passed &&
		   values_at(ahead, position - 1)->pointer.turn > pointer->turn)
	{
		*values_at(ahead, position) = *values_at(ahead, position - 1);
		position--;
	}
	*values_at(ahead, position) = (Value) {.pointer = *pointer};

	/* values behind it that have begun are passed over when they are met */
	if ((int32) (ahead->next - position) > 0)
		ahead->next = position;
}

/*
 * Add the values of a row to the ring; there must be room.  A row that has been
 * updated is met twice, with the same values, while its hint bits do not tell
 * which of both can be seen.
 */
static void
values_add_all(ValuesAhead *ahead, const ToastPointer *pointers, int n)
{
	uint32		position;

	for (int i = 0; i < n; i++)
		if (!values_find(ahead, pointers[i].value, &position))
			values_add(ahead, &pointers[i]);
}

/* Take the pointers of a row; false if half of the array is filled. */
static bool
values_visit_row(RowVisitor *visitor, uint64 turn, HeapTuple row)
{
	ToastPointers wanted = ((PointerVisitor *) visitor)->wanted;

	wanted.turn = turn;
	wanted.array += visitor->found;
	wanted.most -= visitor->found;
	visitor->found += ToastPointersOf(&wanted, row->t_data, row->t_len);
	return visitor->found < (ROW_POINTERS + 1) / 2;
}

/* To take at most ROW_POINTERS of them. */
static PointerVisitor
values_pointer_visitor(const ValuesAhead *ahead, ToastPointer *pointers)
{
	return (PointerVisitor) {
		.base = {.visit = values_visit_row},
		.wanted = {
			.desc = values_desc_of(ahead),
			.toast_table = ahead->toast_table,
			.most = ROW_POINTERS,
			.array = pointers,
		},
	};
}

/*
 * Find the row that has the value that is fetched, and return the number of its
 * pointers; 0 if the node is known to have no such row.
 */
static int
values_row_of(ValuesAhead *ahead, Oid value, ToastPointer *pointers,
			  uint64 *turn)
{
	PointerVisitor visitor;
	int			n;

	if (ahead->above != NULL)
	{
		if (!RowsAboveGoTo(ahead->above, value))
			return 0;
		n = RowsAboveNext(ahead->above, pointers);
		*turn = pointers[0].turn;
		return n;
	}
	visitor = values_pointer_visitor(ahead, pointers);
	return ComingRowsCurrent(&ahead->rows, &visitor.base, turn) ?
		visitor.base.found : 0;
}

/*
 * Find the value that is fetched.  If it is not one of those known ahead, go on
 * from the row on which the scan stands.  What is known of later rows remains
 * known, unless the scan has gone back.
 */
static bool
values_find_fetched(ValuesAhead *ahead, Oid value)
{
	ToastPointer pointers[ROW_POINTERS];
	uint64		turn;
	int			n;
	int			i = 0;

	if (values_find(ahead, value, &ahead->position))
		return true;
	n = values_row_of(ahead, value, pointers, &turn);
	while (i < n && pointers[i].value != value)
		i++;
	if (i == n)
		return false;
	values_pass(ahead, turn);
	if (turn < ahead->turn || ahead->tail - ahead->passed + n > MAX_VALUES)
		values_forget_all(ahead);
	values_add_all(ahead, pointers, n);
	if (ahead->above == NULL)
		ComingRowsRestart(&ahead->rows);
	return values_find(ahead, value, &ahead->position);
}

/* Have the relations changed since the last fetch? */
static bool
values_are_others(const ValuesAhead *ahead, const ToastFetch *fetch)
{
	return fetch->table != ahead->table || fetch->index != ahead->index ||
		RelationGetRelid(fetch->index) != ahead->index_oid ||
		!RelFileLocatorEquals(fetch->table->rd_locator, ahead->table_file) ||
		!RelFileLocatorEquals(fetch->index->rd_locator, ahead->index_file);
}

/* Set the keys by which the chunks of a value are found. */
static void
values_set_keys(ScanKey keys, Oid value, int32 first, int32 last)
{
	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(value));
	ScanKeyInit(&keys[1], 2, BTGreaterEqualStrategyNumber, F_INT4GE,
				Int32GetDatum(first));
	ScanKeyInit(&keys[2], 2, BTLessEqualStrategyNumber, F_INT4LE,
				Int32GetDatum(last));
}

#define NKEYS 3

/* Create the state for look-ups in the relations as they are now. */
static void
values_open_lookup(ValuesAhead *ahead, const ToastFetch *fetch)
{
	MemoryContext old;
	ScanKeyData keys[NKEYS];
	Refusal		refusal;

	/* what has been created before is not freed until the query ends */
	ahead->nrelations++;
	old = MemoryContextSwitchTo(ahead->node->query->estate->es_query_cxt);
	if (ahead->parts[0] == NULL)
	{
		Part	   *parts = palloc_array(Part, MAX_PARTS);

		for (int i = 0; i < MAX_PARTS; i++)
			ahead->parts[i] = &parts[i];
		TotalsAttach(&ToastTotals);
	}
	ahead->table = fetch->table;
	ahead->index = fetch->index;
	ahead->index_oid = RelationGetRelid(fetch->index);
	ahead->table_file = fetch->table->rd_locator;
	ahead->index_file = fetch->index->rd_locator;
	values_set_keys(keys, fetch->value, 0, 0);
	ahead->lookup = LookupCreate(&ahead->shared, fetch->table, fetch->index,
								 keys, NKEYS, ForwardScanDirection, false,
								 LOOKUP_MAX_BLOCKS, &refusal);
	MemoryContextSwitchTo(old);
}

/* Begin the next part of a value; false if no more of it is wanted. */
static bool
values_begin_part(ValuesAhead *ahead, Value *value)
{
	const ToastColumn *column = &ahead->columns[value->pointer.column - 1];
	bool		is_fetched = value == values_at(ahead, ahead->position);
	int32		first = 0;
	int32		last = value->pointer.chunks - 1;
	Part	   *part;

	if (is_fetched)
	{
		/* the server has begun to read the block of its chunk */
		first = ahead->chunk + EXTERN_TUPLES_PER_PAGE;
		last = Min(last, ahead->fetch.last);
	}
	else if (value->fetched || !ToastColumnIsWanted(column))
		return false;
	else if (column->sliced)
	{
		first = column->first_chunk;
		last = Min(last, column->last_chunk);
	}
	first = Max(first, value->next_chunk);
	if (first > last)
		return false;
	part = ahead->parts[ahead->nparts++];
	*part = (Part) {.value = value->pointer.value,
					.first = first,
					.from = first,
					.last = Min(last, first + PART_CHUNKS - 1)};
	LookupBegin(ahead->lookup, &part->key);
	value->next_chunk = part->last + 1;
	if (!value->begun)
	{
		value->begun = true;
		ahead->nbegun++;
		ahead->counters.values++;
		ahead->counters.max_values = Max(ahead->counters.max_values,
										 (uint64) ahead->nbegun);
	}
	return true;
}

/* Learn of more rows; false if none are known now. */
static bool
values_learn_rows(ValuesAhead *ahead)
{
	ToastPointer pointers[ROW_POINTERS];
	PointerVisitor visitor = values_pointer_visitor(ahead, pointers);
	int			n;

	if (ahead->tail - ahead->passed + ROW_POINTERS > MAX_VALUES)
		return false;
	if (ahead->above == NULL)
		ComingRowsNext(&ahead->rows, &visitor.base);
	n = ahead->above != NULL ? RowsAboveNext(ahead->above, pointers) :
		visitor.base.found;
	values_add_all(ahead, pointers, n);
	return n > 0;
}

/*
 * How many parts are ahead.  Those of other values are left out while there is
 * more to begin of the value that is fetched: their turn comes after all of it.
 */
static int
values_parts_that_count(const ValuesAhead *ahead)
{
	int			n = 0;

	if (ahead->next != ahead->position)
		return ahead->nparts;
	for (int i = 0; i < ahead->nparts; i++)
		n += ahead->parts[i]->value == ahead->fetch.value;
	return n;
}

/* Is the next value of a row that is more than "rows" rows away? */
static bool
values_is_beyond(ValuesAhead *ahead, int64 rows)
{
	if (rows == PG_INT64_MAX)
		return false;
	for (uint32 i = ahead->passed; i != ahead->next && rows >= 0; i++)
		rows -= values_at(ahead, i)->pointer.turn !=
			values_at(ahead, i + 1)->pointer.turn;
	return rows < 0;
}

/* Know the values of some rows, to see which of them are fetched. */
static void
values_watch_rows(ValuesAhead *ahead)
{
	while (ahead->tail - ahead->passed < VALUES_WATCHED &&
		   values_learn_rows(ahead))
		CHECK_FOR_INTERRUPTS();
}

/*
 * Begin parts until as many are ahead as the distance allows, but not for rows
 * that the query will not ask for.  Where no column is wanted, a few rows are
 * known, and of them nothing begins.
 */
static void
values_begin_parts(ValuesAhead *ahead)
{
	int			distance = ahead->judge.distance;
	int			fill = Min(FILL_PARTS, (distance + 1) / 2);
	int64		rows = RowsWanted(ahead->node);

	if (values_parts_that_count(ahead) > distance - fill)
		return;
	while (values_parts_that_count(ahead) < distance &&
		   ahead->nparts < MAX_PARTS)
	{
		Value	   *value = values_at(ahead, ahead->next);

		CHECK_FOR_INTERRUPTS();
		if (ahead->next == ahead->tail)
		{
			if (ahead->nwanted == 0)
			{
				values_watch_rows(ahead);
				break;
			}
			if (!values_learn_rows(ahead))
				break;
		}
		else if (values_is_beyond(ahead, rows))
			break;
		else if (!values_begin_part(ahead, value))
			ahead->next++;
	}
}

/*
 * Do what can be done now for a part.  Its chunks may be named by two leaf
 * pages, or lie in many blocks, among those of other values: one look-up finds
 * some of them, and the next one those that follow.
 */
static void
values_advance_part(ValuesAhead *ahead, Part *part, bool wait)
{
	ScanKeyData keys[NKEYS];

	while (LookupIsWanted(&part->key, wait))
	{
		int32		next;
		int32		rest;

		CHECK_FOR_INTERRUPTS();
		values_set_keys(keys, part->value, part->from, part->last);
		LookupAdvance(ahead->lookup, &part->key, keys, wait);
		if (part->key.stage != LOOKUP_DONE)
			break;

		/* if it names no more blocks, the last may hold the next chunks */
		rest = part->key.blocks < LOOKUP_MAX_BLOCKS ? 0 :
			EXTERN_TUPLES_PER_PAGE - 1;
		next = part->from + part->key.matches;
		if (next == part->from || next + rest > part->last)
			break;
		part->from = next;
		LookupAgain(&part->key);
	}
}

/*
 * Do what can be done now for the parts that are ahead.  If they may wait, the
 * leaf page is waited for that the server needs at once, or soon.
 */
static void
values_advance_parts(ValuesAhead *ahead, bool may_wait)
{
	for (int i = 0; i < ahead->nparts; i++)
	{
		Part	   *part = ahead->parts[i];
		bool		wait = may_wait && (i < ahead->nparts / 4 ||
										part->value == ahead->fetch.value);

		values_advance_part(ahead, part, wait);
	}
	LookupRead(ahead->lookup);
}

/* Has the server come to a part of which not all reads have been started? */
static bool
values_is_late(ValuesAhead *ahead)
{
	for (int i = 0; i < ahead->nparts; i++)
	{
		const Part *part = ahead->parts[i];

		if (part->value == ahead->fetch.value &&
			part->first <= ahead->chunk && !LookupIsStarted(&part->key))
			return true;
	}
	return false;
}

/*
 * Start the reads of the parts that the server has come to.  If there is no
 * room, wait until other reads have ended: the server would read what is left
 * page by page.
 */
static void
values_catch_up(ValuesAhead *ahead)
{
	for (int i = 0; i <= LOOKUP_MAX_BLOCKS && values_is_late(ahead); i++)
	{
		CHECK_FOR_INTERRUPTS();
		LookupForgetSizes(ahead->lookup);
		values_advance_parts(ahead, true);
		if (!values_is_late(ahead) || !PageReadsWait(&ahead->shared, false))
			break;
	}
}

/* The server comes to a chunk of the value that it fetches: look ahead. */
static void
values_look_ahead(ValuesAhead *ahead)
{
	/* the index's root is known once the server has searched it */
	if (ahead->lookup == NULL && ahead->judge.mode == JUDGE_AHEAD &&
		ahead->fetch.index->rd_amcache != NULL &&
		ahead->nrelations < MAX_RELATIONS)
		values_open_lookup(ahead, &ahead->fetch);
	if (ahead->judge.mode < JUDGE_AHEAD || ahead->lookup == NULL)
	{
		values_watch_rows(ahead);
		return;
	}
	values_catch_up(ahead);
	values_end_parts(ahead, ahead->fetch.value, ahead->chunk, true);
	if (!LookupMayGoOn(&ahead->shared, LookupIsBehind(ahead->lookup)))
		return;
	LookupForgetSizes(ahead->lookup);
	if (ahead->judge.mode == JUDGE_AHEAD)
		values_begin_parts(ahead);
	values_advance_parts(ahead, false);
	values_advance_parts(ahead, true); /* most leaf pages are cached */
}

/* A unit of work begins: the server reads some chunks. */
static void
values_start_unit(ValuesAhead *ahead)
{
	ahead->start = JudgeStartTiming(&ahead->judge);
	ahead->reads = 0;
	if (ahead->judge.mode != JUDGE_WATCH)
		values_look_ahead(ahead);
	ahead->table_before = CountsNow(ahead->fetch.table);
	ahead->index_before = CountsNow(ahead->fetch.index);
	ahead->counting = ahead->lookup != NULL;
	if (ahead->counting)
		LookupCountBegin(ahead->lookup);
}

/*
 * How many more units are there for which it is worth while to look ahead?
 * While no column is wanted, only the second block of a value of two can be
 * read ahead, while the server reads the first one.
 *		us			what a read took
 */
static int64
values_units_wanted(const ValuesAhead *ahead, double us)
{
	int64		wanted = RowsWanted(ahead->node);

	if (ahead->nwanted == 0 && us < ONE_OF_TWO_US &&
		ahead->fetch.last < 2 * EXTERN_TUPLES_PER_PAGE)
		return 0;
	return wanted >= PG_INT32_MAX ? wanted :
		wanted + (ahead->fetch.last - ahead->chunk) / CHUNKS_PER_LOOK;
}

/* The server has read them: tell the judge. */
static void
values_stop_unit(ValuesAhead *ahead)
{
	Judge	   *judge = &ahead->judge;
	int			reads = ahead->reads +
		(int) (ReadsSince(ahead->fetch.table, &ahead->table_before) +
			   ReadsSince(ahead->fetch.index, &ahead->index_before));
	int64		wanted = 0;
	instr_time	inside;

	INSTR_TIME_SET_ZERO(inside);
	JudgeStopTiming(&inside, ahead->start);
	if (ahead->counting)
		(void) LookupCountEnd(ahead->lookup, PG_INT32_MAX);
	if (judge->mode == JUDGE_WATCH)
	{
		if (reads > 0)
			JudgeReadSeen(judge, ahead->toast_table,
						  effective_io_concurrency);
		return;
	}
	if (judge->mode == JUDGE_TRIAL && reads > 0)
		wanted = values_units_wanted(ahead, INSTR_TIME_GET_NANOSEC(inside) /
									 1000.0 / reads);
	JudgeTimedUnit(judge, reads, &inside, ahead->nparts, wanted,
				   &ahead->node->query->reads_are_slow);
	JudgeEntries(judge, 0, ahead->nparts);
}

int
ValuesAheadWanted(const ValuesAhead *ahead)
{
	JudgeMode	mode = ahead->judge.mode;

	return mode == JUDGE_TRIAL || mode == JUDGE_AHEAD ?
		Max(VALUES_WATCHED, ahead->judge.distance) : 0;
}

bool
ValuesAheadIsIdle(const ValuesAhead *ahead)
{
	return ahead->judge.mode == JUDGE_WATCH &&
		ahead->reads_seen == pgBufferUsage.shared_blks_read;
}

bool
ValuesAheadFetch(ValuesAhead *ahead, const ToastFetch *fetch)
{
	Value	   *value;

	if (ValuesAheadIsIdle(ahead))
		return false;
	ahead->reads_seen = pgBufferUsage.shared_blks_read;
	if (ahead->lookup != NULL && values_are_others(ahead, fetch))
	{
		values_forget_all(ahead);
		ahead->lookup = NULL;
	}
	if (!values_find_fetched(ahead, fetch->value))
		return false;
	ahead->fetch = *fetch;
	value = values_at(ahead, ahead->position);
	value->fetched = true;
	ahead->turn = value->pointer.turn;
	if ((int32) (ahead->next - ahead->position) > 0)
		ahead->next = ahead->position;	/* what is left of it is wanted */
	ahead->fetch.last = Min(fetch->last, value->pointer.chunks - 1);
	ahead->chunk = fetch->first;
	ToastColumnFetched(&ahead->columns[value->pointer.column - 1],
					   fetch->first, ahead->fetch.last, value->pointer.chunks);
	values_pass(ahead, value->pointer.turn);
	values_start_unit(ahead);
	return true;
}

void
ValuesAheadNextChunk(ValuesAhead *ahead)
{
	ahead->chunk++;
	if ((ahead->chunk - ahead->fetch.first) % CHUNKS_PER_LOOK != 0 ||
		ahead->chunk > ahead->fetch.last)
		return;
	values_stop_unit(ahead);
	values_start_unit(ahead);
}

void
ValuesAheadFetched(ValuesAhead *ahead)
{
	if (ahead->lookup != NULL)
	{
		values_end_parts(ahead, ahead->fetch.value, ahead->fetch.last, true);
		values_end_parts(ahead, ahead->fetch.value, PG_INT32_MAX, false);
	}
	values_stop_unit(ahead);
	if (ahead->lookup != NULL)
		LookupPass(ahead->lookup);
}

void
ValuesAheadEnd(ValuesAhead *ahead)
{
	ToastCounters counters;

	if (ahead->lookup != NULL)
	{
		values_forget_all(ahead);
		LookupPass(ahead->lookup);
	}
	counters = ValuesAheadCounters(ahead);
	if (counters.values > 0)
		TotalsAdd(&ToastTotals, &counters);
}

Refusal
ValuesAheadReason(const ValuesAhead *ahead)
{
	return JudgeReason(&ahead->judge);
}

ToastCounters
ValuesAheadCounters(const ValuesAhead *ahead)
{
	ToastCounters counters = ahead->counters;

	counters.scans = counters.values > 0;
	counters.pages = ahead->shared.counters;
	return counters;
}
