/*-------------------------------------------------------------------------
 *
 * gin.c
 *		GIN indexes: pgstatginindex.
 *
 * All three figures stand on the metapage, so there is nothing to sweep.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/gin_private.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_type_d.h"
#include "compat.h"
#include "index/index_page.h"
#include "inspect/inspect.h"
#include "sql_result.h"
#include "storage/bufmgr.h"

/* The columns of the result row. */
static const Oid columns[] = {INT4OID, INT4OID, INT8OID};

PG_FUNCTION_INFO_V1(lookahead_pgstatginindex);

void
GinReadMetapage(Relation rel, GinMetaPageData *meta)
{
	Buffer		buffer = ReadBuffer(rel, GIN_METAPAGE_BLKNO);
	Page		page;

	LockBuffer(buffer, GIN_SHARE);
	page = BufferGetPage(buffer);
	if (!IndexPageHasSpecial(page, sizeof(GinPageOpaqueData)) ||
		(GinPageGetOpaque(page)->flags & GIN_META) == 0)
		IndexPageIsBad(rel, GIN_METAPAGE_BLKNO);
	*meta = *GinPageGetMeta(page);
	UnlockReleaseBuffer(buffer);
}

/* pgstatginindex(regclass) */
Datum
lookahead_pgstatginindex(PG_FUNCTION_ARGS)
{
	Relation	rel = InspectOpen(PG_GETARG_OID(0));
	GinMetaPageData meta;
	Datum		values[lengthof(columns)];

	InspectCheckIndex(rel, GIN_AM_OID, "GIN", "indexes");

	GinReadMetapage(rel, &meta);
	values[0] = Int32GetDatum(meta.ginVersion);
	values[1] = UInt32GetDatum(meta.nPendingPages);
	values[2] = Int64GetDatum(meta.nPendingHeapTuples);
	InspectClose(rel);

	return ResultRow(fcinfo, lengthof(columns), columns, values, NULL);
}
