/*-------------------------------------------------------------------------
 *
 * constraint_keys.c
 *		The keys that the check or the action of a foreign key will look up; see
 *		trigger_queue.h.
 *
 * The columns of the constraint are the first columns of the index, and the
 * constraint's operators tell how they are compared, also across types.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/sysattr.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_constraint.h"
#include "common/hashfn.h"
#include "compat.h"
#include "early/harmless.h"
#include "exec/takeover.h"
#include "foreign_keys/trigger_queue.h"
#include "lookup/relations.h"
#include "parser/parse_coerce.h"
#include "storage/lmgr.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "varatt.h"

/* How often the relations of a constraint may change in one statement. */
#define MAX_CHANGES 8

static void constraint_advance(KeySource *base, LookupKey *key,
							   TupleTableSlot *row, bool wait);

static uint64
constraint_changes(const ConstraintKeys *keys)
{
	return RelationChanges(keys->table) + RelationChanges(keys->index);
}

ConstraintKeys *
ConstraintKeysCreate(LookupShared *shared, MemoryContext mcxt, Oid constraint,
					 bool is_parent)
{
	ConstraintKeys *keys =
		MemoryContextAllocZero(mcxt, sizeof(ConstraintKeys));
	HeapTuple	tuple = SearchSysCache1(CONSTROID,
										ObjectIdGetDatum(constraint));
	Form_pg_constraint form;
	AttrNumber *child;
	AttrNumber *parent;
	Oid			pk_fk[INDEX_MAX_KEYS];
	Oid			others[INDEX_MAX_KEYS];
	AttrNumber	set_columns[INDEX_MAX_KEYS];
	int			nset;

	keys->base.names_rows = true;
	keys->base.advance = constraint_advance;
	keys->shared = shared;
	keys->mcxt = mcxt;
	keys->oid = constraint;
	if (!HeapTupleIsValid(tuple))
		return keys;
	form = (Form_pg_constraint) GETSTRUCT(tuple);
	if (form->contype == CONSTRAINT_FOREIGN)
	{
		keys->rows_table = is_parent ? form->confrelid : form->conrelid;
		keys->table = is_parent ? form->conrelid : form->confrelid;
		keys->own_index = is_parent ? InvalidOid : form->conindid;
		child = is_parent ? keys->columns : keys->rows_columns;
		parent = is_parent ? keys->rows_columns : keys->columns;
		DeconstructFkConstraintRow(tuple, &keys->n, child, parent, pk_fk,
								   others, others, &nset, set_columns);
		for (int i = 0; i < keys->n; i++)
			keys->operators[i] =
				is_parent ? get_commutator(pk_fk[i]) : pk_fk[i];
	}
	ReleaseSysCache(tuple);
	return keys;
}

bool
ConstraintKeysAreAmong(const ConstraintKeys *keys, const Bitmapset *columns)
{
	for (int i = 0; i < keys->n; i++)
	{
		int			column = keys->rows_columns[i];

		if (bms_is_member(column - FirstLowInvalidHeapAttributeNumber,
						  columns))
			return true;
	}
	return false;
}

bool
ConstraintKeysEqual(ConstraintKeys *keys, TupleTableSlot *row,
					TupleTableSlot *other)
{
	TupleDesc	desc = row->tts_tupleDescriptor;

	for (int i = 0; i < keys->n; i++)
	{
		Form_pg_attribute column;
		Datum		value;
		Datum		other_value;
		bool		is_null;
		bool		other_is_null;

		if (keys->rows_columns[i] <= 0 || keys->rows_columns[i] > desc->natts)
			return false;
		column = TupleDescAttr(desc, keys->rows_columns[i] - 1);
		value = slot_getattr(row, keys->rows_columns[i], &is_null);
		other_value = slot_getattr(other, keys->rows_columns[i],
								   &other_is_null);
		if (is_null != other_is_null)
			return false;
		if (!is_null && column->attlen == -1 &&
			(VARATT_IS_EXTERNAL(DatumGetPointer(value)) ||
			 VARATT_IS_EXTERNAL(DatumGetPointer(other_value))))
			return false;
		if (!is_null && !datum_image_eq(value, other_value, column->attbyval,
										column->attlen))
			return false;
	}
	return true;
}

void
ConstraintKeysSetIndex(ConstraintKeys *keys, Oid index)
{
	if (index == keys->index)
		return;
	keys->index = index;
	keys->seen_changes = 0;		/* no count is 0: they begin with 1 */
}

/* The place of a column among those that are looked up, or -1. */
static int
constraint_find_column(const ConstraintKeys *keys, AttrNumber column)
{
	for (int i = 0; i < keys->n; i++)
		if (keys->columns[i] == column)
			return i;
	return -1;
}

/*
 * Make the scan key of a column of the index.  False if that is not looked up
 * for a row, or compared by what may fail.
 */
static bool
constraint_make_one(ConstraintKeys *keys, int column, ScanKey key)
{
	Relation	rel = keys->index_rel;
	int			i =
		constraint_find_column(keys, rel->rd_index->indkey.values[column]);
	Oid			family = rel->rd_opfamily[column];
	Oid			collation = rel->rd_indcollation[column];
	int			equal = rel->rd_rel->relam == HASH_AM_OID ?
		HTEqualStrategyNumber : BTEqualStrategyNumber;
	int			strategy;
	Oid			left;
	Oid			right;
	Oid			given;

	if (i < 0 || !OidIsValid(keys->operators[i]) ||
		get_op_opfamily_strategy(keys->operators[i], family) != equal)
		return false;
	get_op_opfamily_properties(keys->operators[i], family, false, &strategy,
							   &left, &right);
	given = getBaseType(get_atttype(keys->rows_table, keys->rows_columns[i]));
	if ((given != right && !IsBinaryCoercible(given, right)) ||
		!ComparesInfallibly(rel->rd_opcintype[column], collation) ||
		!ComparesInfallibly(given, collation))
		return false;
	ScanKeyEntryInitialize(key, 0, column + 1, strategy, right, collation,
						   get_opcode(keys->operators[i]), (Datum) 0);
	keys->attributes[keys->nkeys] = keys->rows_columns[i];
	return true;
}

/* Create the look-ups in the relations, which have just been opened. */
static void
constraint_make(ConstraintKeys *keys)
{
	Relation	rel = keys->index_rel;
	MemoryContext old = MemoryContextSwitchTo(keys->mcxt);
	Refusal		refusal = NOT_REFUSED;

	keys->nkeys = 0;
	keys->base.lookup = NULL;
	memset(keys->recent, 0, sizeof(keys->recent));
	if (LookupKnowsIndex(rel) && rel->rd_index->indisvalid)
		while (keys->nkeys < IndexRelationGetNumberOfKeyAttributes(rel) &&
			   constraint_make_one(keys, keys->nkeys, &keys->keys[keys->nkeys]))
			keys->nkeys++;
	if (keys->nkeys > 0)
		keys->base.lookup =
			LookupCreate(keys->shared, keys->heap_rel, rel, keys->keys,
						 keys->nkeys, ForwardScanDirection, false,
						 LOOKUP_MAX_BLOCKS, &refusal);
	MemoryContextSwitchTo(old);
}

/*
 * Is there a heap, and an index of it?  A trigger may have dropped either, or
 * may have changed the heap's access method.
 */
static bool
constraint_are_relations(const ConstraintKeys *keys)
{
	return keys->heap_rel != NULL && keys->index_rel != NULL &&
		TakeoverTableRefusal(keys->heap_rel) == NOT_REFUSED &&
		keys->index_rel->rd_rel->relkind == RELKIND_INDEX &&
		keys->index_rel->rd_index->indrelid == keys->table;
}

bool
ConstraintKeysOpen(ConstraintKeys *keys, bool *changed)
{
	if (!OidIsValid(keys->index) || !OidIsValid(keys->table) ||
		!CheckRelationOidLockedByMe(keys->table, AccessShareLock, true) ||
		!CheckRelationOidLockedByMe(keys->index, AccessShareLock, true))
		return false;
	if (keys->seen_changes != constraint_changes(keys) + 1 &&
		keys->nchanges++ >= MAX_CHANGES)
		return false;
	keys->heap_rel = try_relation_open(keys->table, NoLock);
	keys->index_rel = try_relation_open(keys->index, NoLock);
	if (!constraint_are_relations(keys))
	{
		ConstraintKeysClose(keys);
		return false;
	}
	if (keys->seen_changes != constraint_changes(keys) + 1)
	{
		*changed = true;
		keys->seen_changes = constraint_changes(keys) + 1;
		constraint_make(keys);
	}
	keys->base.is_open = keys->base.lookup != NULL;
	if (!keys->base.is_open)
		ConstraintKeysClose(keys);
	return keys->base.is_open;
}

void
ConstraintKeysClose(ConstraintKeys *keys)
{
	if (keys->index_rel != NULL)
		relation_close(keys->index_rel, NoLock);
	if (keys->heap_rel != NULL)
		relation_close(keys->heap_rel, NoLock);
	keys->index_rel = keys->heap_rel = NULL;
	keys->base.is_open = false;
}

/* Set the keys to those of a row; false if they are not looked up. */
static bool
constraint_set(ConstraintKeys *keys, TupleTableSlot *row)
{
	TupleDesc	desc = row->tts_tupleDescriptor;

	for (int i = 0; i < keys->nkeys; i++)
	{
		AttrNumber	attribute = keys->attributes[i];
		bool		is_null;
		Datum		value;

		if (attribute <= 0 || attribute > desc->natts)
			return false;
		value = slot_getattr(row, attribute, &is_null);

		/* a value in a TOAST table is not fetched here */
		if (is_null ||
			(TupleDescAttr(desc, attribute - 1)->attlen == -1 &&
			 VARATT_IS_EXTERNAL(DatumGetPointer(value))))
			return false;
		keys->keys[i].sk_argument = value;
	}
	return true;
}

/* Was the key looked up for one of the last rows, most probably? */
static bool
constraint_are_recent(ConstraintKeys *keys, TupleDesc desc)
{
	uint32		hash = 0;
	uint32	   *recent;

	for (int i = 0; i < keys->nkeys; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc,
												 keys->attributes[i] - 1);

		hash = hash_combine(hash, datum_image_hash(keys->keys[i].sk_argument,
												   column->attbyval,
												   column->attlen));
	}
	hash |= 1;					/* zero: none */
	recent = &keys->recent[(hash >> 1) % RECENT_KEYS];
	if (*recent == hash)
		return true;
	*recent = hash;
	return false;
}

static void
constraint_advance(KeySource *base, LookupKey *key, TupleTableSlot *row,
				   bool wait)
{
	ConstraintKeys *keys = (ConstraintKeys *) base;
	bool		known = constraint_set(keys, row);

	if (known && key->stage == LOOKUP_NEW &&
		constraint_are_recent(keys, row->tts_tupleDescriptor))
		known = false;
	LookupAdvance(base->lookup, key, known ? keys->keys : NULL, wait);
}
