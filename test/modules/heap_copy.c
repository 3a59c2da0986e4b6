/*-------------------------------------------------------------------------
 *
 * heap_copy.c
 *		A table access method that is not heap, but does what heap does.
 *
 * A table of it has to be made as heap and renamed to it in pg_class: heap
 * builds indexes only on tables whose methods are heap's own, by address.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "fmgr.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(heap_copy_handler);

Datum
heap_copy_handler(PG_FUNCTION_ARGS)
{
	static TableAmRoutine copy;

	copy = *GetHeapamTableAmRoutine();
	PG_RETURN_POINTER(&copy);
}
