/*-------------------------------------------------------------------------
 *
 * shared.c
 *		Memory for statistics that all processes share; see shared.h.
 *
 * The memory is a named structure in the server's main shared memory.  Where
 * the library is in shared_preload_libraries, it is made when the server
 * starts. Elsewhere the first process that has something to count takes it from
 * what the server leaves unassigned (some 100 kB).  Dynamic shared memory would
 * be roomier, but making a segment can fail in more ways, and the errors of its
 * registry leave resources behind.
 *
 * A name contains the library's version and the size of the memory, so that two
 * versions of the library in one server use two structures.
 *
 * Statistics must never fail a query, so the server's errors are caught, and
 * that without a subtransaction, which a parallel worker cannot start on
 * PostgreSQL 17.  This is sound because of what ShmemInitStruct() can leave
 * behind when it raises an error:
 *
 * - LWLocks: all are released in answer to an error.  None of them is the
 *	 caller's: each LWLock that a process holds counts in InterruptHoldoffCount,
 *	 and nothing is attempted unless that is zero.  errfinish() sets it to zero.
 * - Memory: none but the error itself.  A failed attempt takes back its entry
 *	 in the index of shared memory.
 * - Nothing else: neither a resource owner, a catalog nor a buffer is used, no
 *	 interrupt is served, and no other code is called.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "miscadmin.h"
#include "observe/shared.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

/* The longest name that the index of shared memory takes, and its end. */
#define NAME_SIZE 48

/* The segments to be made when the server starts. */
static SharedSegment *registered = NULL;
static shmem_request_hook_type next_shmem_request_hook = NULL;
static shmem_startup_hook_type next_shmem_startup_hook = NULL;

/* Make the memory, or find it.  Raises the server's errors. */
static void
shared_attach(SharedSegment *segment)
{
	char		name[NAME_SIZE];
	bool		found;
	void	   *memory;

	snprintf(name, sizeof(name), "pg_lookahead %s %s %zu", LOOKAHEAD_VERSION,
			 segment->name, segment->size);

	/* nobody finds it before it is initialized */
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	memory = ShmemInitStruct(name, segment->size, &found);
	if (!found)
		segment->init(memory);
	LWLockRelease(AddinShmemInitLock);
	segment->memory = memory;
}

static void
shared_warn(const SharedSegment *segment, const char *reason)
{
	static bool warned = false;

	/* a session has many workers, and its leader will warn */
	if (warned || IsParallelWorker())
		return;
	warned = true;
	ereport(WARNING,
			(errmsg("pg_lookahead keeps no statistics in this session"),
			 errdetail("There is no shared memory for the statistics of %s: %s.  Nothing else is affected.",
					   segment->name, reason),
			 errhint("Put pg_lookahead into \"shared_preload_libraries\" to reserve the memory when the server starts.")));
}

/* Make the memory, or find it; if that fails, remember it and warn. */
static void
shared_try_to_attach(SharedSegment *segment)
{
	MemoryContext context = CurrentMemoryContext;
	ErrorData  *error = NULL;

	/* see the head of this file */
	if (InterruptHoldoffCount > 0 || CritSectionCount > 0)
		return;

	PG_TRY();
	{
		shared_attach(segment);
	}
	PG_CATCH();
	{
		LWLockReleaseAll();
		segment->failed = true;
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();

	if (segment->failed)
	{
		shared_warn(segment, error->message);
		FreeErrorData(error);
	}
}

void *
SharedSegmentGet(SharedSegment *segment)
{
	if (segment->memory == NULL && !segment->failed)
		shared_try_to_attach(segment);
	return segment->memory;
}

static void
shared_request_memory(void)
{
	if (next_shmem_request_hook)
		next_shmem_request_hook();
	for (SharedSegment *segment = registered; segment; segment = segment->next)
		RequestAddinShmemSpace(CACHELINEALIGN(segment->size));
}

/* Create the segments' memory, also when the server restarts after a crash. */
static void
shared_make_memory(void)
{
	if (next_shmem_startup_hook)
		next_shmem_startup_hook();
	for (SharedSegment *segment = registered; segment; segment = segment->next)
		shared_attach(segment);
}

void
SharedSegmentRegister(SharedSegment *segment)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	if (registered == NULL)
	{
		next_shmem_request_hook = shmem_request_hook;
		shmem_request_hook = shared_request_memory;
		next_shmem_startup_hook = shmem_startup_hook;
		shmem_startup_hook = shared_make_memory;
	}
	segment->next = registered;
	registered = segment;
}
