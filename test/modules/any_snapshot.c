/*-------------------------------------------------------------------------
 *
 * any_snapshot.c
 *		Code that runs a query under a snapshot that is not of the MVCC kind,
 *		under which a HOT chain may have more than one visible member.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(rows_of_any_version);

/* How many rows a query has when every version of a row is visible. */
Datum
rows_of_any_version(PG_FUNCTION_ARGS)
{
	SPIPlanPtr	plan;
	int64		rows;

	SPI_connect();
	plan = SPI_prepare(text_to_cstring(PG_GETARG_TEXT_PP(0)), 0, NULL);
	if (plan == NULL ||
		SPI_execute_snapshot(plan, NULL, NULL, SnapshotAny, InvalidSnapshot,
							 true, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "query failed");
	rows = (int64) SPI_processed;
	SPI_finish();
	PG_RETURN_INT64(rows);
}
