/*-------------------------------------------------------------------------
 *
 * page_read.c
 *		The read of a page ahead of its use, with nothing held meanwhile; see
 *		page_read.h.
 *
 * All reads that this process has in flight are kept in one list, which
 * outlives queries and transactions: the reads of a failed query stay in it
 * until they have ended.  The list bounds the number of buffers in flight,
 * which the buffer manager does not count, since we hold no pins on them.
 *
 * That bound is vital for local buffers.  When the server looks for a free one
 * it skips those that are being read, and if all were, it would go round for
 * ever (GetLocalVictimBuffer() of 18).
 *
 * Invariant: the list holds each read that was started here and may not have
 * ended, in the order in which they were started.  There is room for a read
 * before it is started.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "observe/profile.h"
#include "read/page_read.h"
#include "read/uncount.h"
#include "storage/smgr.h"
#include "utils/rel.h"

/*
 * The largest value that io_max_concurrency can have.  There may be more reads
 * than that: some that are waited for here are other processes' (since 19), and
 * others end unnoticed between two looks at the list.
 */
#ifndef MAX_IN_FLIGHT
#define MAX_IN_FLIGHT 1024
#endif

/* Only this fraction (1/8) of the local buffers may be in flight. */
#define LOCAL_BUFFERS_PART 8

typedef struct ReadInFlight
{
	LookaheadRead io;
	uint64		number;			/* of reads that were started before it */
	const void *owner;
	RelFileLocator locator;
	BlockNumber block;			/* the first one */
	Buffer		buffer;			/* of that block */
	int			nblocks;
	bool		local;			/* reads into local buffers */
} ReadInFlight;

static ReadInFlight in_flight[MAX_IN_FLIGHT];
static int	nin_flight = 0;
static uint64 nstarted = 0;

bool
PageReadsInBackground(Relation rel)
{
	return LookaheadReadsMayRun(RelationUsesLocalBuffers(rel));
}

/* Remove the reads that have ended from the list. */
static void
page_forget_ended(void)
{
	int			n = 0;

	for (int i = 0; i < nin_flight; i++)
		if (!LookaheadReadIsDone(&in_flight[i].io))
			in_flight[n++] = in_flight[i];
	nin_flight = n;
}

/*
 * Make sure that one more read can be listed.  If the list is full, wait for
 * the oldest one, which may have to be submitted first: nobody may wait for a
 * read of his own that is only staged.
 */
static void
page_make_room(void)
{
	if (likely(nin_flight < MAX_IN_FLIGHT))
		return;
	page_forget_ended();
	if (nin_flight < MAX_IN_FLIGHT)
		return;
	LookaheadSubmit();
	LookaheadReadWait(&in_flight[0].io, in_flight[0].local);
	page_forget_ended();
}

int
PageReadsInFlight(const void *owner)
{
	int			n = 0;

	page_forget_ended();
	for (int i = 0; i < nin_flight; i++)
		n += (in_flight[i].owner == owner);
	return n;
}

bool
PageReadsWait(const void *owner, bool all)
{
	bool		any = false;

	for (int i = 0; i < nin_flight && (all || !any); i++)
	{
		if (in_flight[i].owner != owner)
			continue;
		LookaheadReadWait(&in_flight[i].io, in_flight[i].local);
		any = true;
	}
	page_forget_ended();
	return any;
}

void
PageReadsWaitSince(uint64 n)
{
	for (int i = 0; i < nin_flight; i++)
		if (in_flight[i].number >= n)
			LookaheadReadWait(&in_flight[i].io, in_flight[i].local);
	page_forget_ended();
}

uint64
PageReadsStarted(void)
{
	return nstarted;
}

/*
 * The shared buffer in which a page is.  PrefetchBuffer() would ask the kernel
 * for one that is in none.
 */
static Buffer
page_shared_buffer(Relation rel, BlockNumber block)
{
	BufferTag	tag;
	uint32		hash;
	LWLock	   *lock;
	int			id;

	InitBufferTag(&tag, &rel->rd_locator, MAIN_FORKNUM, block);
	hash = BufTableHashCode(&tag);
	lock = BufMappingPartitionLock(hash);
	LWLockAcquire(lock, LW_SHARED);
	id = BufTableLookup(&tag, hash);
	LWLockRelease(lock);
	return id < 0 ? InvalidBuffer : id + 1;
}

Buffer
PageFind(Relation rel, BlockNumber block)
{
	Buffer		buffer = RelationUsesLocalBuffers(rel) ?
		PrefetchBuffer(rel, MAIN_FORKNUM, block).recent_buffer :
		page_shared_buffer(rel, block);

	if (!BufferIsValid(buffer) ||
		!LookaheadReadRecent(rel, block, buffer))
		return InvalidBuffer;
	(*UsageHits(rel))--;		/* it has counted this, and nothing else */
	return buffer;
}

Buffer
PageFindLocked(Relation rel, BlockNumber block)
{
	Buffer		buffer = PageFind(rel, block);

	if (BufferIsValid(buffer))
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
	return buffer;
}

Buffer
PageReadIfSound(Relation rel, BlockNumber block)
{
	Buffer		buffer = PageFind(rel, block);
	PGIOAlignedBlock page;

	if (BufferIsValid(buffer))
		return buffer;
	smgrread(RelationGetSmgr(rel), MAIN_FORKNUM, block, page.data);
	return LookaheadPageIsVerified(page.data, block) ?
		ReadBuffer(rel, block) : InvalidBuffer;
}

int
PageReadRoom(Relation rel, int wanted)
{
	bool		local = RelationUsesLocalBuffers(rel);
	int			blocks = 0;

	page_forget_ended();
	for (int i = 0; i < nin_flight; i++)
		if (in_flight[i].local == local)
			blocks += in_flight[i].nblocks;
	if (local)
		wanted = Min(wanted, num_temp_buffers / LOCAL_BUFFERS_PART - blocks);
	wanted = Min(wanted, MAX_IN_FLIGHT - nin_flight);
	return LookaheadAdditionalPins(local, wanted + blocks) - blocks;
}

/* Leave a page to the kernel, unless it is in a buffer already. */
static void
page_advise(Relation rel, PageRead *page)
{
	page->buffer = PrefetchBuffer(rel, MAIN_FORKNUM, page->block).recent_buffer;
	page->origin = BufferIsValid(page->buffer) ? PAGE_FOUND : PAGE_ADVISED;
	page->leads = !BufferIsValid(page->buffer);
}

/*
 * Use a read that was started here for another owner, if there is one.  18
 * would wait for its end when it is asked to start the same again.
 */
static bool
page_join_read(Relation rel, PageRead *page)
{
	for (int i = 0; i < nin_flight; i++)
	{
		const ReadInFlight *read = &in_flight[i];

		if (read->block != page->block ||
			!RelFileLocatorEquals(read->locator, rel->rd_locator) ||
			LookaheadReadIsDone(&read->io))
			continue;
		page->buffer = read->buffer;
		page->io = read->io;
		page->origin = PAGE_FOUND;
		page->leads = false;
		return true;
	}
	return false;
}

/*
 * Start reading in the background.  StartReadBuffers() may take on fewer pages
 * than it is asked for, and then has pinned some of the rest, which must be
 * handed to it again.
 */
static PagesStarted
page_start_reads(Relation rel, int nblocks, PageRead *pages, const void *owner)
{
	PagesStarted started = {0};
	CountsBefore before = CountsNow(rel);
	Buffer		buffers[MAX_IO_COMBINE_LIMIT];
	int			joined = 0;
	int64		hits;

	for (int i = 0; i < nblocks; i++)
		buffers[i] = InvalidBuffer;
	for (int i = 0, n; i < nblocks; i += n)
	{
		int64		reads = *UsageReads(rel);
		LookaheadRead io;
		PageOrigin	origin = PAGE_HIT;

		if (!BufferIsValid(buffers[i]) && page_join_read(rel, &pages[i]))
		{
			joined++;
			n = 1;
			continue;
		}
		n = nblocks - i;
		page_make_room();
		if (LookaheadStartRead(rel, pages[i].block, &buffers[i], &n, &io))
		{
			in_flight[nin_flight++] =
				(ReadInFlight) {.io = io, .number = nstarted++,
								.owner = owner,
								.locator = rel->rd_locator,
								.block = pages[i].block,
								.buffer = buffers[i], .nblocks = n,
								.local = RelationUsesLocalBuffers(rel)};

			/* since 19 it may be another process that reads */
			origin = *UsageReads(rel) != reads ? PAGE_READ : PAGE_FOUND;
		}
		for (int j = i; j < i + n; j++)
		{
			pages[j].buffer = buffers[j];
			pages[j].io = io;
			pages[j].origin = origin;
			pages[j].leads = (j == i && origin == PAGE_READ);
			ReleaseBuffer(buffers[j]);
		}
		if (origin == PAGE_READ)
		{
			started.reads++;
			started.combined += (n > 1);
			started.blocks += n;
		}
	}

	/* what was not read is counted when it is wanted */
	hits = *UsageHits(rel) - before.hits;
	CountsAdd(rel, -hits, 0);
	if (pgstat_should_count_relation(rel))
		LOOKAHEAD_COUNT(rel, blocks_fetched) -=
			nblocks - joined - hits - started.blocks;
	return started;
}

PagesStarted
PageReadStartRange(Relation rel, BlockNumber block, int nblocks,
				   PageRead *pages, const void *owner)
{
	PagesStarted started = {0};

	for (int i = 0; i < nblocks; i++)
	{
		pages[i].block = block + i;
		LookaheadReadClear(&pages[i].io);
	}
	if (PageReadsInBackground(rel))
		return page_start_reads(rel, nblocks, pages, owner);
	for (int i = 0; i < nblocks; i++)
	{
		page_advise(rel, &pages[i]);
		started.blocks += PageReadWasRead(&pages[i]);
	}
	started.reads = started.blocks;
	return started;
}

bool
PageReadStart(Relation rel, BlockNumber block, PageRead *page,
			  const void *owner)
{
	CountsBefore before = CountsNow(rel);

	if (block >= RelationGetNumberOfBlocks(rel))
		return false;
	if (PageReadsInBackground(rel) && PageReadRoom(rel, 1) < 1)
		return false;
	(void) PageReadStartRange(rel, block, 1, page, owner);
	(void) UncountSince(rel, &before);
	return page->origin != PAGE_ADVISED;
}

Buffer
PageReadFinish(Relation rel, const PageRead *page)
{
	if (!BufferIsValid(page->buffer))
		return InvalidBuffer;
	PageReadWait(rel, page);
	if (!LookaheadReadRecent(rel, page->block, page->buffer))
		return InvalidBuffer;
	(*UsageHits(rel))--;		/* it has counted this, and nothing else */
	return page->buffer;
}

Buffer
PageReadTake(Relation rel, const PageRead *page, bool *was_read, bool *evicted)
{
	Buffer		buffer = PageReadFinish(rel, page);
	CountsBefore before = CountsNow(rel);

	*was_read = PageReadWasRead(page);
	*evicted = false;
	if (BufferIsValid(buffer))
	{
		if (!*was_read)
			CountsAdd(rel, 1, 0);
		if (page->origin == PAGE_FOUND)
			LookaheadCountIoHit(RelationUsesLocalBuffers(rel));
		return buffer;
	}
	*evicted = page->origin != PAGE_ADVISED;
	buffer = ReadBuffer(rel, page->block);
	if (page->origin == PAGE_READ)
		(void) UncountSince(rel, &before);	/* counted when it was started */
	else
		*was_read = *UsageReads(rel) != before.reads;
	return buffer;
}

void
PageReadWait(Relation rel, const PageRead *page)
{
	if (!PageReadIsDone(page))
		PROFILED_VOID(PROFILE_READ_WAIT,
					  LookaheadReadWait(&page->io,
										RelationUsesLocalBuffers(rel)));
}
