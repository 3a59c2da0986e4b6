/*-------------------------------------------------------------------------
 *
 * refuse_memory.c
 *		Lets a query, or look-ahead, run out of memory.
 *
 * A memory context points to the functions that allocate in it.  One context
 * gets another function, which raises an error when its time has come, and
 * removes itself.  To grow memory, the server does not use that pointer: it
 * takes the function from a table of its own, by the kind of the context.  So
 * the table's function is replaced, and raises an error for one context only.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>
#include <unistd.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/memnodes.h"
#include "storage/lock.h"
#include "utils/memutils.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(refuse_memory);
PG_FUNCTION_INFO_V1(refuse_memory_of_lock);
PG_FUNCTION_INFO_V1(refuse_growth);

/* What a lock that has just been found takes for the list of its owners. */
#define LOCK_OWNERS (8 * sizeof(LOCALLOCKOWNER))

static MemoryContextMethods refusing;
static const MemoryContextMethods *servers;
static int	left;
static MemoryContext limited;	/* in which nothing may grow */

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
refuse_raise(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of memory")));
}

static void
refuse_now(MemoryContext context)
{
	context->methods = servers;
	refuse_raise();
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

/* Replace the server's function, whose table is in read-only memory. */
static void
refuse_replace_realloc(void *(*function) (void *pointer, Size size, int flags))
{
	MemoryContextMethods *shared =
		unconstify(MemoryContextMethods *, TopMemoryContext->methods);
	Size		page = sysconf(_SC_PAGESIZE);

	if (mprotect((void *) TYPEALIGN_DOWN(page, &shared->realloc), page,
				 PROT_READ | PROT_WRITE) != 0)
		elog(ERROR, "mprotect: %m");
	shared->realloc = function;
}

static void *
refuse_realloc(void *pointer, Size size, int flags)
{
	if (GetMemoryChunkContext(pointer) == limited)
		refuse_raise();
	return refusing.realloc(pointer, size, flags);
}

static void
refuse_end_growth(void *arg)
{
	refuse_replace_realloc(refusing.realloc);
}

/* Let nothing grow in the memory of the query that calls this, to its end. */
Datum
refuse_growth(PG_FUNCTION_ARGS)
{
	MemoryContextCallback *end;

	limited = fcinfo->flinfo->fn_mcxt;
	end = MemoryContextAllocZero(limited, sizeof(MemoryContextCallback));
	end->func = refuse_end_growth;
	MemoryContextRegisterResetCallback(limited, end);
	refusing = *TopMemoryContext->methods;
	refuse_replace_realloc(refuse_realloc);
	PG_RETURN_VOID();
}
