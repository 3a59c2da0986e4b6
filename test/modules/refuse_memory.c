/*-------------------------------------------------------------------------
 *
 * refuse_memory.c
 *		Lets a query run out of memory, once.
 *
 * A memory context leads to the functions that allocate in it.  That of the
 * query which calls refuse_memory() gets another one, which raises an error
 * when it is called for the n-th time, and removes itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "nodes/memnodes.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(refuse_memory);

static MemoryContextMethods refusing;
static const MemoryContextMethods *servers;
static int	left;

static void *
refuse_allocation(MemoryContext context, Size size, int flags)
{
	if (--left > 0)
		return servers->alloc(context, size, flags);
	context->methods = servers;
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of memory")));
}

/* The argument: which allocation of the query from now on is to fail. */
Datum
refuse_memory(PG_FUNCTION_ARGS)
{
	MemoryContext query = fcinfo->flinfo->fn_mcxt;

	servers = query->methods;
	refusing = *servers;
	refusing.alloc = refuse_allocation;
	query->methods = &refusing;
	left = PG_GETARG_INT32(0);
	PG_RETURN_VOID();
}
