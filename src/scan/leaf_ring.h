/*-------------------------------------------------------------------------
 *
 * leaf_ring.h
 *		The leaf pages of a btree that a scan will come to, in one ring.
 *
 * The access method goes from one leaf page to the next, and waits for each.
 * The ring knows some of those that come next, in the order of the scan, at
 * four positions:
 *
 *		scan <= looked <= started <= listed
 *
 *	scan		the first page that the scan has not come to
 *	looked		the first page whose entries are not known
 *	started		the first page whose read has not been started
 *	listed		the end of the ring
 *
 * There are three sources of pages:
 *	- the parents of leaf pages (leaf_parents.c) list many at a time;
 *	- the right link (left link) of the page that was looked at last tells of
 *	  the one after it.  Where both disagree, a page was split or deleted after
 *	  it was listed, and the link is right;
 *	- a second scan (index/btree_descents.c), where only the access method knows
 *	  the way, looks at the page of its next matches.
 *
 * One rule tells when the read of a page is started: when fewer pages are
 * started and not looked at than are wanted, which is the distance of the
 * judge (exec/judge.h) where leaf pages are to be read ahead, and otherwise
 * one when the next page is to be looked at.
 *
 * One account is kept of reads for which the counters have to be put right
 * (uncount.h): each page of the ring carries the reads that were made for it
 * and for the pages above it.  They are owed from when the scan steps to the
 * page, or past it, and the hits that the server's code makes are counted as
 * reads until nothing is owed.
 *
 * Invariants:
 * - Nothing is pinned or locked between two calls.
 * - A leaf page that had to be read ahead is counted as read when the scan
 *	 comes there, and not before.
 * - No leaf page is listed by its parents that lies beyond the range of the
 *	 scan, as far as that can be known.
 * - While a scan is not ahead, all memory is one small struct.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_LEAF_RING_H
#define PG_LOOKAHEAD_LEAF_RING_H

#include "access/relscan.h"
#include "access/sdir.h"
#include "exec/ahead_node.h"
#include "index/btree_children.h"
#include "index/btree_leaf.h"
#include "observe/totals.h"
#include "portability/instr_time.h"
#include "read/page_read.h"
#include "read/uncount.h"

/*
 * leaf_parents.c: lists of the leaf pages that a btree scan will come to.
 *
 * A list comes from one page of level 1 (index/btree_children.h).  The read of
 * the next such page is started when the one before it has been looked at; and
 * where a series of searches visits many of them, each for a few leaf pages,
 * some are read ahead, as listed by the level above them.
 *
 * Invariants:
 * - Nothing is pinned or locked between two calls.
 * - No page is listed that the index does not have.
 */

/* The most pages of level 1 that are read ahead for a series of searches. */
#define MAX_PARENTS 8

typedef struct LeafParents
{
	MemoryContext mcxt;			/* of all of this, and of what "leaves" needs */
	Relation	index;
	const void *owner;
	BlockNumber nblocks;		/* of the index, when they were last counted */
	BTreeChildren leaves;		/* the list, in the order of the scan */
	bool		is_reading;		/* "reading" is the page of the next list */
	PageRead	reading;
	int			owed;			/* reads of pages above the leaf pages that the
								 * scan will search, too; see uncount.h */

	/* of a series of searches */
	bool		has_above;		/* "above" tells of further pages of level 1 */
	BTreeChildren above;
	int			nlisted;		/* pages taken from the list of "above" */
	int			nahead;			/* pages of level 1 that are read ahead */
	PageRead	ahead[MAX_PARENTS];
} LeafParents;

/*
 * Begin to list the leaf pages of a scan, after the one on which it stands, or
 * from_start: those of a scan that has not begun, whose keys have been
 * preprocessed.  NULL if they cannot be known.  Memory is a child of mcxt; the
 * reads belong to "owner" (see page_read.h).
 */
extern LeafParents *LeafParentsBegin(MemoryContext mcxt, IndexScanDesc scan,
									 ScanDirection dir, bool from_start,
									 const void *owner);

extern void LeafParentsEnd(LeafParents *parents);

/*
 * Make the next list; false if there is none, or its page is still being read
 * and is not to be waited for.
 */
extern bool LeafParentsNext(LeafParents *parents, bool wait);

typedef struct LeafRing LeafRing;

/*
 * Create the ring of a node that scans a btree.  bitmap: the scans run to their
 * end, and are seen on each page.  shares: another scan of the same BitmapOr,
 * or NULL; the two have one judge, and one limit.
 */
extern LeafRing *LeafRingCreate(const AheadNode *base, IndexScanDesc scan,
								bool bitmap, LeafRing *shares);

/* Must LeafRingBefore() and -After() be called around each step? */
extern bool LeafRingIsActive(const LeafRing *ring);

/* A step of the scan that may take it to another leaf page. */
typedef struct LeafStep
{
	CountsBefore before;
	instr_time	start;			/* 0: not wanted */
} LeafStep;

/*
 * Call these before such a step, and after it.  ended: no match is left in the
 * range of the scan.
 */
extern void LeafRingBefore(LeafRing *ring, IndexScanDesc scan,
						   ScanDirection dir, LeafStep *step);
extern void LeafRingAfter(LeafRing *ring, IndexScanDesc scan,
						  const LeafStep *step, bool ended);

/*
 * Call this instead, while the ring is not active, when the scan has read a
 * page of its index.  Leaf pages are read ahead from the first such page on, if
 * that is allowed.
 */
extern void LeafRingReadSeen(LeafRing *ring, IndexScanDesc scan);

/*
 * Start reading what is wanted ahead for the next "rows" rows, counted from the
 * entry on which the scan stands.
 */
extern void LeafRingFill(LeafRing *ring, IndexScanDesc scan, int64 rows);

/*
 * Read leaf pages ahead before the scan has begun, whose keys have been
 * preprocessed; at most "most" of them, and without a wait for their parents.
 * Returns the number of pages that have been read ahead for the scan.
 */
extern int	LeafRingFillAtStart(LeafRing *ring, IndexScanDesc scan, int most);

/* How many more leaf pages are wanted ahead than have been started. */
extern int	LeafRingRoom(const LeafRing *ring);

/* Has all of the scan's range, as far as it is known, been started? */
extern bool LeafRingIsComplete(const LeafRing *ring);

/*
 * Tell where the scan stands, before the functions below are called.  False if
 * it was moved, or goes another way: then the ring is empty.
 */
extern bool LeafRingFollow(LeafRing *ring, IndexScanDesc scan,
						   ScanDirection dir);

/*
 * The position of the page on which the scan stands.  It grows with each page,
 * and is never used again for another one.
 */
extern uint64 LeafRingPosition(const LeafRing *ring);

/* What a look at the next page may cost, and what it is for. */
typedef struct LeafLook
{
	uint64		returned;		/* entries that the scan has returned */
	uint64		begun;			/* of these, before it was begun again */
	int64		rows;			/* see LeafRingFill() */
	int			max_entries;	/* do not look at more pages than hold these */
	uint64		known;			/* entries known, counted as "returned" */
	int64		certain;		/* see HeapAheadFill() */
	bool		wait;			/* for the read of the page */
} LeafLook;

/*
 * The entries of the page at a position after that of the scan.  Looks at one
 * more page if they are not known yet.  Returns NULL if nothing is known of it:
 * the scan ends before it, or it may not be looked at, or is being read.
 */
extern const BTreeLeaf *LeafRingLook(LeafRing *ring, IndexScanDesc scan,
									 uint64 position, const LeafLook *look);

/* Forget what is ahead: the scan has ended, or was moved. */
extern void LeafRingForget(LeafRing *ring);

/* The node will not be executed again; see AheadMethods.end. */
extern void LeafRingEnd(const LeafRing *ring);

/* Return the counters; what is still ahead counts as unused. */
extern ScanCounters LeafRingCounters(const LeafRing *ring);

/* Report what EXPLAIN shows of leaf pages. */
extern void LeafRingReport(const ScanCounters *counters, AheadReport *report);

#endif							/* PG_LOOKAHEAD_LEAF_RING_H */
