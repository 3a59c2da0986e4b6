/*-------------------------------------------------------------------------
 *
 * index_keys.c
 *		The keys that rows to be written will have in an index; see
 *		index_keys.h.
 *
 * The key of an entry has a value for each key column of the index, so that
 * each is looked up by "=".  The server puts an entry of an index that is not
 * unique behind all equal ones, as the TID of a new row is mostly the highest:
 * there the look-up goes to the last leaf page that can have equal entries.  In
 * a unique index the server begins with the first one.
 *
 * An entry with a NULL is not looked up.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/index.h"
#include "catalog/pg_am_d.h"
#include "compat.h"
#include "early/harmless.h"
#include "early/heap_row.h"
#include "exec/judge.h"
#include "exec/takeover.h"
#include "executor/executor.h"
#include "lookup/lookup.h"
#include "optimizer/optimizer.h"
#include "read/uncount.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "varatt.h"
#include "write/index_keys.h"

/* Rows without a read after which nothing is looked up in the index. */
#define IDLE_ROWS 64

/*
 * Whenever pages of an index have been read for ROWS_CHECKED more rows, and
 * less than half of these got an entry, nothing is looked up in it for the next
 * ROWS_OF_REST rows.
 */
#define ROWS_CHECKED 64
#define ROWS_OF_REST 1024

typedef struct IndexKeys
{
	KeySource	base;
	EState	   *estate;
	ExprContext *econtext;		/* shared with other nodes: reset before use */
	Relation	index;
	IndexInfo  *info;			/* our own: the server has another one */
	Bitmapset  *computed;		/* columns of its expressions and predicate */
	ScanKey		keys;			/* one for each key column */
	int64		misses_seen;
	int			idle_rows;		/* consecutive rows without a read */
	int64		visits_seen;	/* pages that the server has looked at */
	int			rows_with;		/* rows for which pages were read, and that got
								 * an entry, since the last check */
	int			rows_in_vain;	/* the same, but without an entry */
	int			rest;			/* rows for which nothing is looked up */
} IndexKeys;

/* Return the reason against an index in the columns that it depends on. */
static Refusal
index_keys_columns_refusal(const IndexKeys *index, TupleDesc table)
{
	const IndexInfo *info = index->info;
	Bitmapset  *columns = bms_copy(index->computed);
	int			i = -1;

	for (int j = 0; j < info->ii_NumIndexKeyAttrs; j++)
		if (info->ii_IndexAttrNumbers[j] != 0)
			columns = bms_add_member(columns, info->ii_IndexAttrNumbers[j] -
									 FirstLowInvalidHeapAttributeNumber);
	while ((i = bms_next_member(columns, i)) >= 0)
	{
		int			column = i + FirstLowInvalidHeapAttributeNumber;

		if (column <= 0)
			return REFUSED_INDEX_WHOLE_ROW;
		if (TupleDescAttr(table, column - 1)->attgenerated != '\0')
			return REFUSED_INDEX_GENERATED;
	}
	return NOT_REFUSED;
}

/* Is an expression of an index one that can be evaluated early? */
static bool
index_keys_are_known_early(const IndexKeys *index, List *expression)
{
	List	   *params = NIL;

	return HarmlessExpression((Node *) expression, false, false, &params) &&
		params == NIL &&
		IsInfallible((Node *) expression, index->estate);
}

/* Make the keys; return the reason why that cannot be done. */
static Refusal
index_keys_make(IndexKeys *index)
{
	Relation	rel = index->index;
	bool		is_hash = rel->rd_rel->relam == HASH_AM_OID;
	int			n = index->info->ii_NumIndexKeyAttrs;

	index->keys = palloc0_array(ScanKeyData, n);
	for (int i = 0; i < n; i++)
	{
		Oid			type = rel->rd_opcintype[i];
		StrategyNumber equal = is_hash ? HTEqualStrategyNumber :
			BTEqualStrategyNumber;
		Oid			operator = get_opfamily_member(rel->rd_opfamily[i], type,
												   type, equal);

		if (!ComparesInfallibly(type, rel->rd_indcollation[i]) ||
			!OidIsValid(operator))
			return REFUSED_INDEX_FALLIBLE;
		ScanKeyEntryInitialize(&index->keys[i], 0, i + 1, equal, type,
							   rel->rd_indcollation[i], get_opcode(operator),
							   (Datum) 0);
	}
	return NOT_REFUSED;
}

/* The pages of an index that the server has looked at; -1 if not known. */
static int64
index_keys_visits(const IndexKeys *index)
{
	return pgstat_should_count_relation(index->index) ?
		LOOKAHEAD_COUNT(index->index, blocks_fetched) : -1;
}

/*
 * Note whether the row got an entry in an index, if pages of it were read for
 * the row.  With ON CONFLICT, a row that conflicts may get none: then the
 * server does not look at the index.
 */
static void
index_keys_note_entry(KeysAhead *ahead, IndexKeys *index)
{
	int64		visits = index_keys_visits(index);
	bool		has_entry = visits != index->visits_seen;
	int			pages = index->base.pages;

	index->visits_seen = visits;
	index->base.pages = 0;
	index->rest -= index->rest > 0;
	if (visits < 0 || pages == 0)
		return;
	if (has_entry)
		index->rows_with++;
	else
	{
		ahead->lookups.counters.blocks_unused += pages;
		index->rows_in_vain++;
	}
	if (index->rows_with + index->rows_in_vain < ROWS_CHECKED)
		return;
	if (index->rows_in_vain > index->rows_with)
		index->rest = ROWS_OF_REST;
	index->rows_with = index->rows_in_vain = 0;
}

void
IndexKeysNoteReads(KeysAhead *ahead)
{
	for (int i = 0; i < ahead->nsources; i++)
	{
		IndexKeys  *index = (IndexKeys *) ahead->sources[i];
		int64		misses = MissesOf(&index->index, 1);

		index_keys_note_entry(ahead, index);
		index->idle_rows = misses != index->misses_seen ? 0 :
			Min(index->idle_rows + 1, IDLE_ROWS);
		index->misses_seen = misses;
	}
}

bool
IndexRowIsToasted(TupleTableSlot *row, const Bitmapset *columns)
{
	int			column = -1;

	while ((column = bms_next_member(columns, column)) >= 0)
	{
		int			i = column + FirstLowInvalidHeapAttributeNumber;
		bool		is_null;
		Datum		value = slot_getattr(row, i, &is_null);

		if (!is_null &&
			TupleDescAttr(row->tts_tupleDescriptor, i - 1)->attlen == -1 &&
			HeapValueIsToasted(DatumGetPointer(value)))
			return true;
	}
	return false;
}

/*
 * Set the keys to those of a row.  False if it gets no entry, or one that is
 * not looked up.
 */
static bool
index_keys_set(IndexKeys *index, TupleTableSlot *row)
{
	IndexInfo  *info = index->info;
	EState	   *estate = index->estate;
	ExprContext *servers = estate->es_per_tuple_exprcontext;
	ExprContext *econtext = index->econtext;
	Datum		values[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS];
	bool		has_entry;

	if (IndexRowIsToasted(row, index->computed))
		return false;

	/* the server's functions evaluate in this one, which we may reset */
	estate->es_per_tuple_exprcontext = econtext;
	econtext->ecxt_scantuple = row;
	if (info->ii_Predicate != NIL && info->ii_PredicateState == NULL)
		info->ii_PredicateState = ExecPrepareQual(info->ii_Predicate, estate);
	has_entry = ExecQual(info->ii_PredicateState, econtext);
	if (has_entry)
		FormIndexDatum(info, row, estate, values, nulls);
	estate->es_per_tuple_exprcontext = servers;
	for (int i = 0; has_entry && i < info->ii_NumIndexKeyAttrs; i++)
	{
		/* a value in a TOAST table is not fetched here */
		if (nulls[i] ||
			(TupleDescAttr(RelationGetDescr(index->index), i)->attlen == -1 &&
			 VARATT_IS_EXTERNAL(DatumGetPointer(values[i]))))
			return false;
		index->keys[i].sk_argument = values[i];
	}
	return has_entry;
}

/*
 * Nothing is looked up in an index of which no page had to be read for one of
 * the last rows, or in which most of them got no entry.
 */
static void
index_keys_advance(KeySource *base, LookupKey *key, TupleTableSlot *row,
				   bool wait)
{
	IndexKeys  *index = (IndexKeys *) base;
	ExprContext *econtext = index->econtext;
	MemoryContext old;
	bool		known;

	if (index->rest > 0 && lookahead_debug_force != JUDGE_FORCED)
		return;
	if (index->idle_rows == IDLE_ROWS && index->misses_seen >= 0 &&
		lookahead_debug_force == JUDGE_MEASURES)
		return;
	ResetExprContext(econtext);
	old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	known = index_keys_set(index, row);
	LookupAdvance(base->lookup, key, known ? index->keys : NULL, wait);
	MemoryContextSwitchTo(old);
}

/* Make an index a source of a ring; return the reason if that cannot be. */
static Refusal
index_keys_add_index(KeysAhead *ahead, IndexKeys *index, Relation heap)
{
	Relation	rel = index->index;
	bool		conflicts = index->base.names_rows;
	Refusal		refusal;

	if (!LookupKnowsIndex(rel))
		return REFUSED_WRITTEN_METHOD;
	index->info = BuildIndexInfo(rel);
	pull_varattnos((Node *) index->info->ii_Expressions, 1, &index->computed);
	pull_varattnos((Node *) index->info->ii_Predicate, 1, &index->computed);
	refusal = index_keys_columns_refusal(index, RelationGetDescr(heap));
	if (refusal != NOT_REFUSED)
		return refusal;
	if (!index_keys_are_known_early(index, index->info->ii_Expressions) ||
		!index_keys_are_known_early(index, index->info->ii_Predicate))
		return REFUSED_INDEX_EXPRESSION;
	if (!index->info->ii_ReadyForInserts)
		return REFUSED_INDEX_UNFINISHED;
	refusal = index_keys_make(index);
	if (refusal != NOT_REFUSED)
		return refusal;
	index->base.lookup =
		LookupCreate(&ahead->lookups, heap, rel, index->keys,
					 index->info->ii_NumIndexKeyAttrs, index->info->ii_Unique ?
					 ForwardScanDirection : BackwardScanDirection,
					 false, conflicts ? LOOKUP_MAX_BLOCKS : 0, &refusal);
	if (refusal != NOT_REFUSED)
		return refusal;
	index->misses_seen = MissesOf(&rel, 1);
	index->visits_seen = index_keys_visits(index);
	ahead->sources[ahead->nsources++] = &index->base;
	return NOT_REFUSED;
}

Refusal
IndexKeysOpen(KeysAhead *ahead, EState *estate, ExprContext *econtext,
			  Relation table, const Relation *indexes, const bool *conflicts,
			  int nindexes, const RowsBounds *bounds)
{
	Refusal		refusal = REFUSED_NO_INDEXES;

	ahead->oldest_is_due = true;
	KeysAheadOpen(ahead, nindexes, bounds);
	for (int i = 0; i < nindexes; i++)
	{
		IndexKeys  *index;

		if (indexes[i] == NULL)
			continue;
		index = palloc0_object(IndexKeys);
		index->base = (KeySource) {
			.is_open = true,
			.names_rows = conflicts != NULL && conflicts[i],
			.advance = index_keys_advance};
		index->estate = estate;
		index->econtext = econtext;
		index->index = indexes[i];
		refusal = index_keys_add_index(ahead, index, table);
	}
	if (ahead->nsources > 0)
		return NOT_REFUSED;
	*ahead = (KeysAhead) {0};
	return refusal;
}
