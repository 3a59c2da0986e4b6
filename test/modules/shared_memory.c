/*-------------------------------------------------------------------------
 *
 * shared_memory.c
 *		Functions that leave others no shared memory: for tests of what becomes
 *		of statistics then.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"
#include "fmgr.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/builtins.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(fill_shared_memory);
PG_FUNCTION_INFO_V1(claim_shared_memory);
PG_FUNCTION_INFO_V1(run_under_lwlock);
PG_FUNCTION_INFO_V1(lock_is_held);

/*
 * fill_shared_memory() returns bigint: take all of the main shared memory that
 * is not assigned, for good; the answer is how many bytes that were.
 */
Datum
fill_shared_memory(PG_FUNCTION_ARGS)
{
	int64		taken = 0;

	for (Size size = 1024 * 1024; size > 0; size /= 2)
		while (ShmemAllocNoError(size) != NULL)
			taken += size;
	PG_RETURN_INT64(taken);
}

/*
 * claim_shared_memory(name text, size bigint) returns boolean: make a named
 * structure in shared memory; false if there was one.
 */
Datum
claim_shared_memory(PG_FUNCTION_ARGS)
{
	bool		found;
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));

	(void) ShmemInitStruct(name, (Size) PG_GETARG_INT64(1), &found);
	PG_RETURN_BOOL(!found);
}

/*
 * run_under_lwlock(query text) returns boolean: run a query while holding an
 * LWLock, as a comparison function in SQL does while a btree is searched; the
 * answer is whether the lock was still held when the query had ended.
 */
Datum
run_under_lwlock(PG_FUNCTION_ARGS)
{
	static LWLock lock;
	char	   *query = text_to_cstring(PG_GETARG_TEXT_PP(0));
	bool		held;

	LWLockInitialize(&lock, LWTRANCHE_PARALLEL_HASH_JOIN);
	SPI_connect();
	LWLockAcquire(&lock, LW_EXCLUSIVE);
	if (SPI_execute(query, false, 0) < 0)
		elog(ERROR, "could not run %s", query);
	held = LWLockHeldByMe(&lock);
	if (held)
		LWLockRelease(&lock);
	SPI_finish();
	PG_RETURN_BOOL(held);
}

/*
 * lock_is_held() returns boolean: does the process hold the LWLock under which
 * a library makes its shared memory?
 */
Datum
lock_is_held(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(LWLockHeldByMe(AddinShmemInitLock));
}
