/*-------------------------------------------------------------------------
 *
 * btree_copy.c
 *		An index access method that does what btree does, and says of each
 *		entry that it is asked for.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/amapi.h"
#include "access/nbtree.h"
#include "fmgr.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(btree_copy_handler);

static bool
btree_copy_next(IndexScanDesc scan, ScanDirection direction)
{
	elog(NOTICE, "scanned");
	return btgettuple(scan, direction);
}

/* A server may free the routine, or keep it for ever. */
Datum
btree_copy_handler(PG_FUNCTION_ARGS)
{
	IndexAmRoutine *copy = MemoryContextAlloc(TopMemoryContext,
											  sizeof(IndexAmRoutine));

	*copy = *(const IndexAmRoutine *) DatumGetPointer(
		DirectFunctionCall1(bthandler, (Datum) 0));
	copy->amgettuple = btree_copy_next;
	PG_RETURN_POINTER(copy);
}
