/*-------------------------------------------------------------------------
 *
 * routing.c
 *		To which partition of a table a row belongs; see harmless.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "builtin.h"
#include "early/harmless.h"
#include "partitioning/partbounds.h"
#include "partitioning/partdesc.h"
#include "utils/partcache.h"
#include "utils/rel.h"

/* As the server's own routing asks for them. */
static PartitionDesc
routing_partitions(Relation table)
{
	return RelationGetPartitionDesc(table, !IsolationUsesXactSnapshot());
}

bool
RoutingIsHarmless(Relation table)
{
	PartitionKey key = RelationGetPartitionKey(table);
	PartitionDesc partitions;

	/* a partition's own condition is of its parent's key */
	if (table->rd_rel->relispartition || key->partexprs != NIL)
		return false;

	/* the condition of the default partition calls operators of the family */
	for (int i = 0; i < key->partnatts; i++)
		if (!IsBuiltin(key->partopfamily[i]) ||
			!IsBuiltin(key->partsupfunc[i].fn_oid) ||
			!ComparesInfallibly(key->parttypid[i], key->partcollation[i]) ||
			TupleDescAttr(RelationGetDescr(table),
						  key->partattrs[i] - 1)->attgenerated != '\0')
			return false;

	/* the server may have to sort the bounds now, by the key's functions */
	partitions = routing_partitions(table);
	for (int i = 0; i < partitions->nparts; i++)
		if (!partitions->is_leaf[i])
			return false;
	return true;
}

Oid
RoutingFind(Relation table, TupleTableSlot *row)
{
	PartitionKey key = RelationGetPartitionKey(table);
	PartitionDesc partitions = routing_partitions(table);
	PartitionBoundInfo bounds = partitions->boundinfo;
	Datum		values[PARTITION_MAX_KEYS];
	bool		isnull[PARTITION_MAX_KEYS];
	bool		any_null = false;
	bool		equal;
	int			i = -1;

	if (partitions->nparts == 0)
		return InvalidOid;
	for (int j = 0; j < key->partnatts; j++)
	{
		values[j] = slot_getattr(row, key->partattrs[j], &isnull[j]);
		any_null |= isnull[j];
	}
	if (key->strategy == PARTITION_STRATEGY_HASH)
		i = bounds->indexes[compute_partition_hash_value(key->partnatts,
														 key->partsupfunc,
														 key->partcollation,
														 values, isnull) %
							bounds->nindexes];
	else if (any_null)
		i = key->strategy == PARTITION_STRATEGY_LIST ? bounds->null_index : -1;
	else if (key->strategy == PARTITION_STRATEGY_RANGE)
		i = bounds->indexes[partition_range_datum_bsearch(key->partsupfunc,
														  key->partcollation,
														  bounds,
														  key->partnatts,
														  values, &equal) + 1];
	else
	{
		int			offset = partition_list_bsearch(key->partsupfunc,
													key->partcollation,
													bounds, values[0], &equal);

		if (offset >= 0 && equal)
			i = bounds->indexes[offset];
	}
	if (i < 0)
		i = bounds->default_index;
	return i < 0 ? InvalidOid : partitions->oids[i];
}
