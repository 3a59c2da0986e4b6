/*-------------------------------------------------------------------------
 *
 * page_read.h
 *		The read of a page ahead of its use, with nothing held meanwhile.
 *
 * A page is started, and finished when it is wanted; in between it is neither
 * pinned nor locked, and belongs to no resource owner.  While its read is in
 * flight, the server's AIO subsystem holds a pin of its own on the buffer (for
 * local buffers, too).  Once the read has ended, the page may be evicted like
 * any other.  To finish is to wait for the read, if need be, and to pin the
 * buffer, if it still holds the page.
 *
 * Where nothing reads in the background (before 18, with io_method = sync, and
 * in some other cases: see PageReadsInBackground) the kernel is advised to read
 * the page; that is all that is done ahead.
 *
 * A PageRead is a plain value: it may be copied, and freed or forgotten at any
 * moment, in or after an error as well.  No memory of the caller's is written
 * to after a call has returned.  README.md has the other invariants.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_PAGE_READ_H
#define PG_LOOKAHEAD_PAGE_READ_H

#include "compat.h"
#include "storage/bufmgr.h"
#include "utils/relcache.h"

typedef enum PageOrigin
{
	PAGE_HIT,					/* found, and in pg_stat_io as a hit */
	PAGE_FOUND,					/* found, or read by another process */
	PAGE_READ,					/* read, or being read */
	PAGE_ADVISED				/* left to the kernel */
} PageOrigin;

typedef struct PageRead
{
	BlockNumber block;
	Buffer		buffer;			/* where the page is or will be, or Invalid */
	LookaheadRead io;			/* what to wait for, if anything */
	uint8		origin;			/* a PageOrigin */
	bool		leads;			/* is the first page of a read */
} PageRead;

/* Did the page have to be read, or will have to be? */
static inline bool
PageReadWasRead(const PageRead *page)
{
	return page->origin >= PAGE_READ;
}

/*
 * Start reading a page of the main fork, if there is such a page and room for
 * one more read.  False if not, or if the kernel was advised only: then there
 * is nothing to finish.  May raise an error (out of buffers, broken file), as
 * ReadBuffer() may.  Counts for nothing; if the page had to be read, a read is
 * owed: see uncount.h.  The owner is any address; PageReadsWait() waits for its
 * reads.
 */
extern bool PageReadStart(Relation rel, BlockNumber block, PageRead *page,
						  const void *owner);

/* Has the read ended?  Never waits. */
static inline bool
PageReadIsDone(const PageRead *page)
{
	return LookaheadReadIsDone(&page->io);
}

/*
 * Wait for the read, and pin the page.  InvalidBuffer if it could not be read,
 * was evicted since, or was left to the kernel.  Counts for nothing.
 */
extern Buffer PageReadFinish(Relation rel, const PageRead *page);

/*
 * Wait for the read of a page that is not wanted any more.  That is not needed
 * for the memory's sake; but an idle process is not to keep buffers in flight.
 */
extern void PageReadWait(Relation rel, const PageRead *page);

/*
 * Pin a page of the main fork if it is cached; else return InvalidBuffer, and
 * read nothing.  Counts for nothing.
 */
extern Buffer PageFind(Relation rel, BlockNumber block);

/* Do so, and lock it in share mode. */
extern Buffer PageFindLocked(Relation rel, BlockNumber block);

/*
 * Pin a page of the main fork, which exists; InvalidBuffer, without a report,
 * if it is damaged: the server may never come to it.  One that is not cached is
 * read twice, first past shared buffers.  Counts as ReadBuffer() does if it is
 * read, and else for nothing.
 */
extern Buffer PageReadIfSound(Relation rel, BlockNumber block);

/* What a window needs besides. */

/*
 * Do as PageReadFinish(), but read the page in the ordinary way if that gives
 * no buffer.  Counts for one access in all, unless the page had to be read
 * twice.  Sets *was_read if it had to be read, then or now, and *evicted if
 * it was no longer there, or not valid.
 */
extern Buffer PageReadTake(Relation rel, const PageRead *page, bool *was_read,
						   bool *evicted);

/* What a call of PageReadStartRange() did. */
typedef struct PagesStarted
{
	int			reads;
	int			combined;		/* of these, reads of more than one page */
	int			blocks;			/* all pages that had to be read */
} PagesStarted;

/* Are pages of this relation read in the background? */
extern bool PageReadsInBackground(Relation rel);

/*
 * How many pages, at most "wanted", may be started now?  Only for a relation
 * that is read in the background.
 */
extern int	PageReadRoom(Relation rel, int wanted);

/*
 * Start reading adjacent pages of the main fork, at most MAX_IO_COMBINE_LIMIT,
 * all of which exist, and describe each in an array.
 */
extern PagesStarted PageReadStartRange(Relation rel, BlockNumber block,
									   int nblocks, PageRead *pages,
									   const void *owner);

/* The number of reads in flight that were started for an owner. */
extern int	PageReadsInFlight(const void *owner);

/*
 * Wait for an owner's reads, for all of them or only for the one that was
 * started first.  Return false if there is none.
 */
extern bool PageReadsWait(const void *owner, bool all);

/* How many reads has this process started so far? */
extern uint64 PageReadsStarted(void);

/* Wait for its reads in flight but the first "n" that it ever started. */
extern void PageReadsWaitSince(uint64 n);

#endif							/* PG_LOOKAHEAD_PAGE_READ_H */
