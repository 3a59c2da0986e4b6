/*-------------------------------------------------------------------------
 *
 * unlocked_write.c
 *		Changes pages of a table without a lock on them, until it is cancelled.
 *
 * The server itself does that to pages of the free space map.  What changes
 * here is pd_prune_xid, a hint, of the table's first pages; in the end it is
 * what it was.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "utils/rel.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(unlocked_write);

#define PAGES 16

Datum
unlocked_write(PG_FUNCTION_ARGS)
{
	Relation	rel = relation_open(PG_GETARG_OID(0), AccessShareLock);
	Buffer		buffers[PAGES];
	volatile TransactionId *hints[PAGES];
	TransactionId before[PAGES];

	for (int i = 0; i < PAGES; i++)
	{
		buffers[i] = ReadBuffer(rel, i);
		hints[i] = &((PageHeader) BufferGetPage(buffers[i]))->pd_prune_xid;
		before[i] = *hints[i];
	}

	while (!QueryCancelPending)
	{
		for (int i = 0; i < PAGES; i++)
			*hints[i] = FirstNormalTransactionId + (*hints[i] + 1) % 1000;
	}

	for (int i = 0; i < PAGES; i++)
	{
		*hints[i] = before[i];
		ReleaseBuffer(buffers[i]);
	}
	relation_close(rel, AccessShareLock);
	CHECK_FOR_INTERRUPTS();
	PG_RETURN_VOID();
}
