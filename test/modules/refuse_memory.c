/*-------------------------------------------------------------------------
 *
 * refuse_memory.c
 *		Lets a query, or look-ahead, run out of memory, once.
 *
 * A memory context leads to the functions that allocate in it.  One context
 * gets another function, which raises an error when its time has come, and
 * removes itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/memnodes.h"
#include "storage/lock.h"
#include "utils/memutils.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(refuse_memory);
PG_FUNCTION_INFO_V1(refuse_memory_of_lock);

/* What a lock that has just been found takes for the list of its owners. */
#define LOCK_OWNERS (8 * sizeof(LOCALLOCKOWNER))

static MemoryContextMethods refusing;
static const MemoryContextMethods *servers;
static int	left;

static void
refuse_from(MemoryContext context,
			void *(*alloc) (MemoryContext context, Size size, int flags))
{
	servers = context->methods;
	refusing = *servers;
	refusing.alloc = alloc;
	context->methods = &refusing;
}

static void
refuse_now(MemoryContext context)
{
	context->methods = servers;
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of memory")));
}

static void *
refuse_allocation(MemoryContext context, Size size, int flags)
{
	if (--left <= 0)
		refuse_now(context);
	return servers->alloc(context, size, flags);
}

/* Refuse the n-th allocation from now on of the query that calls this. */
Datum
refuse_memory(PG_FUNCTION_ARGS)
{
	left = PG_GETARG_INT32(0);
	refuse_from(fcinfo->flinfo->fn_mcxt, refuse_allocation);
	PG_RETURN_VOID();
}

static void *
refuse_lock(MemoryContext context, Size size, int flags)
{
	if (InterruptHoldoffCount > 0 && size == LOCK_OWNERS)
		refuse_now(context);
	return servers->alloc(context, size, flags);
}

/* A trigger: refuse the next lock that is taken while interrupts are held. */
Datum
refuse_memory_of_lock(PG_FUNCTION_ARGS)
{
	refuse_from(TopMemoryContext, refuse_lock);
	return PointerGetDatum(NULL);
}
