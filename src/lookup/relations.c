/*-------------------------------------------------------------------------
 *
 * relations.c
 *		Whether what is remembered of relations may still be true, and tables
 *		with their indexes that are opened without waiting; see relations.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/namespace.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_amop_d.h"
#include "catalog/pg_amproc_d.h"
#include "catalog/pg_attrdef_d.h"
#include "catalog/pg_attribute_d.h"
#include "catalog/pg_class_d.h"
#include "catalog/pg_collation_d.h"
#include "catalog/pg_constraint_d.h"
#include "catalog/pg_index_d.h"
#include "catalog/pg_inherits_d.h"
#include "catalog/pg_namespace_d.h"
#include "catalog/pg_opclass_d.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_opfamily_d.h"
#include "catalog/pg_partitioned_table_d.h"
#include "catalog/pg_policy_d.h"
#include "catalog/pg_proc_d.h"
#include "catalog/pg_rewrite_d.h"
#include "catalog/pg_tablespace_d.h"
#include "catalog/pg_trigger_d.h"
#include "catalog/pg_type_d.h"
#include "compat.h"
#include "lookup/relations.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* Counts of changes of relations, by OID modulo this. */
#define CHANGES 256

static uint64 changes[CHANGES];

/* An entry of the relation cache, or each one, has been dropped or rebuilt. */
static void
relations_note_change(Datum arg, Oid relation)
{
	if (OidIsValid(relation))
		changes[relation % CHANGES]++;
	else
		for (int i = 0; i < CHANGES; i++)
			changes[i]++;
}

void
RelationChangesInit(void)
{
	CacheRegisterRelcacheCallback(relations_note_change, (Datum) 0);
}

uint64
RelationChanges(Oid relation)
{
	return changes[relation % CHANGES];
}

/* How often have the relations of a table been invalidated so far? */
static uint64
relations_changes_of(const TableRelations *table)
{
	uint64		all = RelationChanges(table->oid);

	for (int i = 0; i < table->nindexes; i++)
		all += RelationChanges(table->index_oids[i]);
	return all;
}

/*
 * Are accesses to a relation counted without further ado?  The counters come
 * and go, and are made only of what is locked.
 */
static inline bool
relations_is_counted(Relation rel)
{
	return rel->pgstat_info != NULL || !rel->pgstat_enabled;
}

bool
TableIsCurrent(const TableRelations *table)
{
	if (!OidIsValid(table->oid) || relations_changes_of(table) != table->seen)
		return false;
	for (int i = 0; i < table->nindexes; i++)
		if (!relations_is_counted(table->indexes[i]))
			return false;
	return table->nindexes == 0 || relations_is_counted(table->rel);
}

/*
 * Lock the catalogs that are read to find a table and to make its look-ups, in
 * a mode that keeps their indexes from being rebuilt: so neither is waited for.
 */
static bool
relations_lock_catalogs(void)
{
	static const Oid catalogs[] = {
		AccessMethodRelationId, AccessMethodOperatorRelationId,
		AccessMethodProcedureRelationId, AttrDefaultRelationId,
		AttributeRelationId, CollationRelationId, ConstraintRelationId,
		IndexRelationId, InheritsRelationId, NamespaceRelationId,
		OperatorClassRelationId, OperatorFamilyRelationId, OperatorRelationId,
		PartitionedRelationId, PolicyRelationId, ProcedureRelationId,
		RelationRelationId, RewriteRelationId, TableSpaceRelationId,
		TriggerRelationId, TypeRelationId
	};

	for (int i = 0; i < lengthof(catalogs); i++)
		if (!ConditionalLockRelationOid(catalogs[i], RowExclusiveLock))
			return false;
	return true;
}

/*
 * Has the server made the expressions of an index?  It evaluates what is
 * constant in them, maybe by users' functions, with the rights of the table's
 * owner.  Here that would be done with this process's.
 */
static bool
relations_index_is_made(Relation index)
{
	HeapTuple	tuple = index->rd_indextuple;

	return (index->rd_indexprs != NIL ||
			heap_attisnull(tuple, Anum_pg_index_indexprs, NULL)) &&
		(index->rd_indpred != NIL ||
		 heap_attisnull(tuple, Anum_pg_index_indpred, NULL));
}

/*
 * Has the server made what it knows of a table's partitions?  It makes values
 * of their bounds, and sorts them, maybe by users' functions.
 */
static bool
relations_partitions_are_made(Relation table)
{
	return table->rd_rel->relkind != RELKIND_PARTITIONED_TABLE ||
		(table->rd_partkey != NULL && (table->rd_partdesc != NULL ||
									   table->rd_partdesc_nodetached != NULL));
}

/* Open what has been locked, and its indexes. */
static bool
relations_open_first(TableRelations *table, Oid oid)
{
	List	   *indexes;

	table->rel = relation_open(oid, NoLock);
	if (!relations_partitions_are_made(table->rel))
		return false;
	indexes = table->rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE ? NIL :
		RelationGetIndexList(table->rel);
	table->index_oids = palloc0_array(Oid, Max(1, list_length(indexes)));
	table->indexes = palloc0_array(Relation, Max(1, list_length(indexes)));
	foreach_oid(index, indexes)
	{
		if (!ConditionalLockRelationOid(index, AccessShareLock))
			return false;
		table->indexes[table->nindexes] = relation_open(index, NoLock);
		(void) pgstat_should_count_relation(table->indexes[table->nindexes]);
		table->index_oids[table->nindexes++] = index;
	}
	for (int i = 0; i < table->nindexes; i++)
		if (!relations_index_is_made(table->indexes[i]))
			return false;
	(void) pgstat_should_count_relation(table->rel);
	table->oid = oid;
	table->seen = relations_changes_of(table);
	return true;
}

bool
TableFind(TableRelations *table, const char *schema, const char *name)
{
	Oid			oid;

	*table = (TableRelations) {0};
	if (!relations_lock_catalogs())
		return false;
	oid = get_namespace_oid(schema, true);
	if (OidIsValid(oid))
		oid = get_relname_relid(name, oid);
	return OidIsValid(oid) &&
		CheckRelationOidLockedByMe(oid, RowExclusiveLock, true) &&
		relations_open_first(table, oid);
}

bool
TableFindPartition(TableRelations *table, Oid oid)
{
	*table = (TableRelations) {.is_partition = true};
	return relations_lock_catalogs() &&
		ConditionalLockRelationOid(oid, AccessShareLock) &&
		relations_open_first(table, oid);
}

bool
TableOpenAgain(TableRelations *table)
{
	if (table->is_partition ?
			!ConditionalLockRelationOid(table->oid, AccessShareLock) :
			!CheckRelationOidLockedByMe(table->oid, RowExclusiveLock, true))
		return false;
	for (int i = 0; i < table->nindexes; i++)
		if (!ConditionalLockRelationOid(table->index_oids[i], AccessShareLock))
			return false;
	if (!TableIsCurrent(table))
		return false;
	if (relation_open(table->oid, NoLock) != table->rel)
		elog(ERROR, "another cache entry of relation %u", table->oid);
	for (int i = 0; i < table->nindexes; i++)
		if (relation_open(table->index_oids[i], NoLock) != table->indexes[i])
			elog(ERROR, "another cache entry of relation %u",
				 table->index_oids[i]);
	return true;
}
