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

#include "catalog/pg_class.h"
#include "inspect/inspect.h"
#include "storage/bufmgr.h"

/* pg_relpages, given the relation; closes it. */
static Datum
relpages_count(Relation rel, FunctionCallInfo fcinfo)
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

INSPECT_FUNCTIONS(lookahead_pg_relpages, relpages_count)
