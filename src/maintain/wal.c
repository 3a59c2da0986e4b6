/*-------------------------------------------------------------------------
 *
 * wal.c
 *		Writing the pages of a relation to the WAL: log_relation.
 *
 * The pages are taken from a stream, and full-page images of them are written
 * to the WAL, as many to a record as one may have.  Whoever replays the WAL
 * then has these pages as they are here, whatever its own copies were before.
 *
 * Others can read and write the relation meanwhile: AccessShareLock only keeps
 * it from being dropped, rewritten and truncated.  (ALTER SEQUENCE rewrites a
 * sequence under a weaker lock, and RowExclusiveLock keeps it from that, as in
 * nextval().  An image of a file that has been dropped would be replayed into
 * a new file, which nobody would ever remove.)  An image is taken under the
 * page's exclusive lock and gives the page its LSN, so it takes its place among
 * the records of other changes of the page.  Blocks that are added meanwhile
 * are left out, since the processes that add them log them.
 *
 * What is registered with the record is a copy of the page, made under that
 * lock.  The checksum of a record is computed from what was registered, which
 * is read once more when the record is copied into the WAL.  In between,
 * modules may set hints of their own without a lock, and nobody could replay
 * the WAL from a record with a wrong checksum on.  The free space map, where
 * VACUUM does so, is not taken at all: VACUUM fills it in again.
 *
 * Pages of one record must stay locked until it is inserted.  Nothing orders
 * these locks against those of a btree split, and nobody detects a deadlock
 * between content locks.  Therefore:
 *
 * - The stream is asked for pages, and the pages of a record are pinned, while
 *	 no page is locked.
 * - A record waits for the lock of one page, while it holds none.  If the lock
 *	 of a further page is not to be had at once, what is locked so far is a
 *	 record of its own, and that page is the first one of the next.
 *
 * An image leaves out the hole between pd_lower and pd_upper.  In relations
 * other than tables, visibility maps, BRIN's range map and metapages of old
 * releases have their contents there.  So there, the hole is left out only if
 * all of it is zero, which is what replay puts there.
 *
 * nextval() logs a value of a sequence that is 32 calls ahead, and nothing at
 * these calls.  Replay of an image would set the sequence back, and values
 * would be handed out twice.  So, before the image is made, the page is changed
 * to say that no further value has been logged: the next nextval() writes a
 * record.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/tableam.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "access/xlogrecord.h"
#include "catalog/pg_class.h"
#include "catalog/pg_control.h"
#include "commands/sequence.h"
#include "common/relpath.h"
#include "compat.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "observe/profile.h"
#include "observe/progress.h"
#include "storage/bufmgr.h"
#include "storage/smgr.h"
#include "read/sweep.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* A range of blocks on its way into the WAL. */
typedef struct LogRange
{
	Relation	rel;
	ForkNumber	fork;
	BlockNumber next;			/* next block to read, if not streamed */
	BlockNumber end;			/* end of the range, exclusive */
	BufferAccessStrategy strategy;
	PGAlignedBlock *copies;		/* copies of the pages of one record */
	Sweep	   *sweep;			/* NULL: read one block at a time */
	int64		logged;			/* number of pages logged so far */
	XLogRecPtr	last;			/* end of the last record */
} LogRange;

PG_FUNCTION_INFO_V1(lookahead_log_relation);

/*
 * Refuse relations without storage, those whose changes are not logged, and
 * indexes whose build has not ended.
 */
static void
wal_check_relation(Relation rel)
{
	const char *name = RelationGetRelationName(rel);

	if (!RELKIND_HAS_STORAGE(rel->rd_rel->relkind))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("relation \"%s\" has no pages to write to the WAL", name),
				 errdetail_relkind_not_supported(rel->rd_rel->relkind),
				 RELKIND_HAS_PARTITIONS(rel->rd_rel->relkind) ?
				 errhint("Name one of its partitions instead: pg_partition_tree() lists them.") : 0));

	if (rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot write pages of relation \"%s\" to the WAL", name),
				 rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP ?
				 errdetail("The relation is temporary, and no other server has its pages.") :
				 errdetail("The relation is unlogged, and empty on every server that replays the WAL."),
				 rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP ? 0 :
				 errhint("Use ALTER TABLE ... SET LOGGED to write all of it to the WAL.")));

	/*
	 * The file is synced at commit in place of logging its changes.  Changes
	 * that follow would be lost if our images were replayed after a crash.
	 */
	if (!RelationNeedsWAL(rel))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot write pages of relation \"%s\" to the WAL yet", name),
				 errdetail("The relation was created or rewritten in this transaction, which does not log changes of it if \"wal_level\" is \"minimal\"."),
				 errhint("Commit the transaction first.")));

	/*
	 * CREATE INDEX CONCURRENTLY writes the file past shared buffers, out of
	 * order: a page read meanwhile would stay cached as it was then, the
	 * metapage as one of zeroes.  An index is ready when that is over.
	 */
	if (rel->rd_index != NULL && !rel->rd_index->indisready)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot write pages of index \"%s\" to the WAL",
						name),
				 errdetail("The index is being built or dropped, or its build failed.")));
}

/* Check a block number that was given as an argument. */
static BlockNumber
wal_check_block(LogRange *range, const char *argument, int64 block,
				BlockNumber nblocks)
{
	if (block < 0 || block >= nblocks)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is %lld, which is not a block of relation \"%s\"",
						argument, (long long) block,
						RelationGetRelationName(range->rel)),
				 errdetail_plural("Fork \"%s\" has %u block.",
								  "Fork \"%s\" has %u blocks.",
								  nblocks,
								  forkNames[range->fork], nblocks),
				 errhint("Blocks are numbered from 0.  Without %s, the range %s of the fork.",
						 argument,
						 strcmp(argument, "first_block") == 0 ?
						 "begins at the start" : "ends at the end")));
	return (BlockNumber) block;
}

/*
 * How the image of a page is to be registered: without its hole, or whole.
 * Where the header describes no hole, xloginsert.c itself takes all.
 */
static uint8
wal_image_flags(LogRange *range, Page page)
{
	PageHeader	header = (PageHeader) page;
	const char *hole = page + header->pd_lower;
	int			length = (int) header->pd_upper - (int) header->pd_lower;
	bool		unused;

	if (header->pd_lower < SizeOfPageHeaderData || length <= 0 ||
		header->pd_upper > BLCKSZ)
		return REGBUF_FORCE_IMAGE;

	/* all bytes are zero if the first is, and each is what precedes it */
	unused = (range->fork == MAIN_FORKNUM &&
			  range->rel->rd_tableam == GetHeapamTableAmRoutine()) ||
		(hole[0] == 0 && memcmp(hole, hole + 1, length - 1) == 0);

	return REGBUF_FORCE_IMAGE | (unused ? REGBUF_STANDARD : 0);
}

/*
 * Make the page of a sequence, which is locked, say that no further value of
 * it has been logged; see the head of this file.
 */
static void
wal_forget_logged_values(Relation rel, Buffer buffer)
{
	Page		page = BufferGetPage(buffer);
	HeapTupleHeader tuple;
	ItemId		item = NULL;

	if (PageGetMaxOffsetNumber(page) >= FirstOffsetNumber)
		item = PageGetItemId(page, FirstOffsetNumber);
	if (item == NULL || !ItemIdIsNormal(item) ||
		ItemIdGetLength(item) < SizeofHeapTupleHeader ||
		ItemIdGetOffset(item) + ItemIdGetLength(item) > BLCKSZ ||
		(tuple = (HeapTupleHeader) PageGetItem(page, item))->t_hoff +
		offsetof(FormData_pg_sequence_data, is_called) + sizeof(bool) >
		ItemIdGetLength(item))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("sequence \"%s\" contains corrupted page at block %u",
						RelationGetRelationName(rel),
						BufferGetBlockNumber(buffer))));
	((Form_pg_sequence_data) ((char *) tuple + tuple->t_hoff))->log_cnt = 0;
}

/*
 * Write one record with the images of pages that are locked, none of them
 * new; unlock and unpin them.
 */
static void
wal_log_record(LogRange *range, Buffer *buffers, int n)
{
	XLogRecPtr	end;

	if (range->rel->rd_rel->relkind == RELKIND_SEQUENCE)
		for (int i = 0; i < n; i++)
			wal_forget_logged_values(range->rel, buffers[i]);

	for (int i = 0; i < n; i++)
		memcpy(range->copies[i].data, BufferGetPage(buffers[i]), BLCKSZ);

	START_CRIT_SECTION();

	XLogBeginInsert();
	for (int i = 0; i < n; i++)
	{
		RelFileLocator locator;
		ForkNumber	fork;
		BlockNumber block;
		Page		copy = range->copies[i].data;

		/* before the record: a checkpoint in between must write the page */
		MarkBufferDirty(buffers[i]);
		BufferGetTag(buffers[i], &locator, &fork, &block);
		XLogRegisterBlock(i, &locator, fork, block, copy,
						  wal_image_flags(range, copy));
	}
	end = XLogInsert(RM_XLOG_ID, XLOG_FPI);
	for (int i = 0; i < n; i++)
		PageSetLSN(BufferGetPage(buffers[i]), end);

	END_CRIT_SECTION();

	for (int i = 0; i < n; i++)
		UnlockReleaseBuffer(buffers[i]);
	range->logged += n;
	range->last = end;
}

/*
 * Write pages that are pinned, at most XLR_MAX_BLOCK_ID, to the WAL, and
 * unpin them.  An empty page is passed over: an LSN would make it one that is
 * not empty.
 */
static void
wal_log_pinned(LogRange *range, Buffer *buffers, int n)
{
	int			done = 0;

	while (done < n)
	{
		Buffer		locked[XLR_MAX_BLOCK_ID];
		int			nlocked = 0;

		while (done < n)
		{
			Buffer		buffer = buffers[done];

			/* wait only while no other page is locked */
			if (nlocked == 0)
				LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
			else if (!ConditionalLockBuffer(buffer))
				break;
			done++;

			if (PageIsNew(BufferGetPage(buffer)))
				UnlockReleaseBuffer(buffer);
			else
				locked[nlocked++] = buffer;
		}
		if (nlocked > 0)
			PROFILED_VOID(PROFILE_LOG_PAGES,
						  wal_log_record(range, locked, nlocked));
	}
}

/* The next page of the range, pinned; InvalidBuffer after the last. */
static Buffer
wal_next_page(LogRange *range)
{
	if (range->sweep)
		return SweepNext(range->sweep);

	CHECK_FOR_INTERRUPTS();
	if (range->next >= range->end)
		return InvalidBuffer;
	ProgressAdd(1);
	return ReadBufferExtended(range->rel, range->fork, range->next++,
							  RBM_NORMAL, range->strategy);
}

/*
 * Write all pages of the range to the WAL.  A backend that may pin only few
 * buffers writes smaller records.
 */
static void
wal_log_range(LogRange *range)
{
	Buffer		buffers[XLR_MAX_BLOCK_ID];
	int			capacity;
	int			n = 0;
	Buffer		buffer;

	capacity = 1 + LookaheadAdditionalPins(false, XLR_MAX_BLOCK_ID - 1);
	XLogEnsureRecordSpace(XLR_MAX_BLOCK_ID - 1, 0);
	range->copies = palloc_array(PGAlignedBlock, capacity);

	while (BufferIsValid(buffer = wal_next_page(range)))
	{
		buffers[n++] = buffer;
		if (n == capacity)
		{
			wal_log_pinned(range, buffers, n);
			n = 0;
		}
	}
	wal_log_pinned(range, buffers, n);
	pfree(range->copies);
}

/*
 * log_relation(rel regclass, fork text, first_block int8, last_block int8,
 *				streamed bool)
 *
 * Write full-page images of the blocks first_block to last_block (inclusive;
 * NULL: the last of the fork) of a relation fork to the WAL, and return how
 * many pages that were.  They are on disk in the WAL on return, whatever
 * becomes of the transaction.  Superusers only; not during recovery.
 */
Datum
lookahead_log_relation(PG_FUNCTION_ARGS)
{
	static const char *const argument[] = {
		"rel", "fork", "first_block", "last_block", "streamed"
	};
	LogRange	range = {0};
	Sweep		sweep;
	LOCKMODE	lock;
	BlockNumber nblocks;
	int64		first;

	for (int i = 0; i < PG_NARGS(); i++)
	{
		if (PG_ARGISNULL(i) && i != 3)
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("%s must not be NULL", argument[i])));
	}
	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be superuser to write pages of a relation to the WAL")));
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot write to the WAL during recovery"),
				 errhint("Call the function on the primary.  Its standbys replay what the function logs.")));

	range.fork = forkname_to_number(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	if (range.fork == FSM_FORKNUM)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot write the free space map of a relation to the WAL"),
				 errdetail("VACUUM changes pages of the map without locking them."),
				 errhint("The map needs no repair: the server reads a damaged page of it as an empty one, and VACUUM fills it in again.")));
	lock = get_rel_relkind(PG_GETARG_OID(0)) == RELKIND_SEQUENCE ?
		RowExclusiveLock : AccessShareLock;
	range.rel = relation_open(PG_GETARG_OID(0), lock);
	wal_check_relation(range.rel);
	if (!smgrexists(RelationGetSmgr(range.rel), range.fork))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("relation \"%s\" has no fork \"%s\"",
						RelationGetRelationName(range.rel),
						forkNames[range.fork]),
				 errhint("VACUUM creates the fork \"vm\" of a table.  Only unlogged relations have the fork \"init\".")));

	nblocks = RelationGetNumberOfBlocksInFork(range.rel, range.fork);
	first = PG_GETARG_INT64(2);
	if (nblocks > 0 || first != 0)
		range.next = wal_check_block(&range, "first_block", first, nblocks);
	range.end = nblocks;
	if (!PG_ARGISNULL(3))
		range.end = wal_check_block(&range, "last_block", PG_GETARG_INT64(3),
									nblocks) + 1;
	if (range.next >= range.end && nblocks > 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("first_block %u comes after last_block %u",
						range.next, range.end - 1)));

	/* a ring meant for pages that are written soon */
	range.strategy = GetAccessStrategy(BAS_BULKWRITE);
	ProgressBegin("log_relation", RelationGetRelid(range.rel), false);
	if (PG_GETARG_BOOL(4))
	{
		range.sweep = &sweep;
		sweep = (Sweep) {.rel = range.rel, .fork = range.fork,
						 .first = range.next, .end = range.end,
						 .maintenance = true, .strategy = range.strategy};
		SweepBegin(&sweep);
	}
	else
		ProgressExpect(range.end - range.next);
	wal_log_range(&range);
	if (range.sweep)
		SweepEnd(range.sweep);
	FreeAccessStrategy(range.strategy);

	ProgressEnd();

	/* a transaction without changes would not wait for it */
	if (range.logged > 0)
		XLogFlush(range.last);

	relation_close(range.rel, lock);
	PG_RETURN_INT64(range.logged);
}
