/*-------------------------------------------------------------------------
 *
 * relpages.c
 *		Any relation with storage: pg_relpages, its length in blocks.
 *
 * No page is read, so temporary relations of other sessions will do.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "inspect/inspect.h"
#include "storage/bufmgr.h"

PG_FUNCTION_INFO_V1(lookahead_pg_relpages);
PG_FUNCTION_INFO_V1(lookahead_pg_relpages_byname);

/* pg_relpages, given the relation; closes it. */
static Datum
relpages_count(Relation rel)
{
	BlockNumber nblocks;

	if (!RELKIND_HAS_STORAGE(rel->rd_rel->relkind))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot get page count of relation \"%s\"",
						RelationGetRelationName(rel)),
				 errdetail_relkind_not_supported(rel->rd_rel->relkind),
				 InspectHintPartitions(rel)));

	nblocks = RelationGetNumberOfBlocks(rel);
	InspectClose(rel);
	return Int64GetDatum((int64) nblocks);
}

/* pg_relpages(regclass) */
Datum
lookahead_pg_relpages(PG_FUNCTION_ARGS)
{
	return relpages_count(relation_open(PG_GETARG_OID(0), AccessShareLock));
}

/* pg_relpages(text) */
Datum
lookahead_pg_relpages_byname(PG_FUNCTION_ARGS)
{
	return relpages_count(InspectOpenByName(PG_GETARG_TEXT_PP(0)));
}
