/*-------------------------------------------------------------------------
 *
 * btree_descents.c
 *		A second scan that runs ahead of a btree scan.
 *
 * A scan with array keys ("= ANY", skip scan) descends the tree anew for each
 * group of values, and only the access method knows to which page.  So a
 * second scan descriptor, with the same keys, is moved from page to page by the
 * access method's own function.  Only the heap blocks of the matches of each
 * page are noted.
 *
 * The second scan starts where the first one started, and has to find the page
 * on which that one stands now.  For that it may visit a few pages, and one
 * more for each entry that the scan has returned, so that it does not do much
 * more work than the scan itself has done.  From there on it visits the pages
 * that the scan will visit if it goes on; a step cannot be stopped before it
 * has found a match.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/nbtree.h"
#include "access/xact.h"
#include "index/btree_keys.h"
#include "index/btree_leaf.h"
#include "miscadmin.h"
#include "read/uncount.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* The most pages to visit before the scan has returned an entry. */
#define PAGES_TO_CATCH_UP 64

struct BTreeDescents
{
	MemoryContext mcxt;			/* memory context of the private scan */
	IndexScanDesc scan;			/* private scan; NULL: not begun, or lost */
	uint64		caught_up;		/* pages visited to catch up with the scan */
	int			owed;			/* reads owed; see BTreeDescentsOwed() */
	bool		lost;			/* the scan's place cannot be found */
};

bool
BTreeNeedsDescents(IndexScanDesc scan)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;

	return !IsolationIsSerializable() && BTScanPosIsValid(so->currPos) &&
		!BTreeLeafKeysAreUsual(scan);
}

BlockNumber
BTreePagesInVain(IndexScanDesc scan)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;
	BlockNumber pages = RelationGetNumberOfBlocks(scan->indexRelation);
	uint64		searches = 1;

	if (BTreeScanSkips(scan) ||
		!BTreeKeysMake(scan->indexRelation, ForwardScanDirection, so->keyData,
					   so->numberOfKeys).all_required)
		return pages;
	for (int i = 0; i < so->numArrayKeys; i++)
		searches = Min(searches * so->arrayKeys[i].num_elems, pages);
	return searches;
}

BTreeDescents *
BTreeDescentsCreate(MemoryContext mcxt)
{
	BTreeDescents *descents =
		MemoryContextAllocZero(mcxt, sizeof(BTreeDescents));

	descents->mcxt = AllocSetContextCreate(mcxt, "look-ahead second scan",
										ALLOCSET_SMALL_SIZES);
	return descents;
}

/*
 * Start a scan of the same keys.  When the scan is begun again, with others,
 * this one is forgotten before it is asked for anything.
 */
static void
descents_start(BTreeDescents *descents, IndexScanDesc scan)
{
	MemoryContext old = MemoryContextSwitchTo(descents->mcxt);

	descents->scan = btbeginscan(scan->indexRelation, scan->numberOfKeys, 0);
	descents->scan->heapRelation = scan->heapRelation;
	descents->scan->xs_snapshot = scan->xs_snapshot;
	descents->scan->parallel_scan = NULL;
	descents->scan->ignore_killed_tuples = scan->ignore_killed_tuples;
	btrescan(descents->scan, scan->keyData, scan->numberOfKeys, NULL, 0);
	MemoryContextSwitchTo(old);
}

/* Go to the next page that holds matches; false if there is none. */
static bool
descents_step(BTreeDescents *descents, ScanDirection dir)
{
	IndexScanDesc scan = descents->scan;
	Relation	index = scan->indexRelation;
	BTScanPos	pos = &((BTScanOpaque) scan->opaque)->currPos;
	CountsBefore before = CountsNow(index);
	MemoryContext old;
	bool		found;

	if (BTScanPosIsValid(*pos))
		pos->itemIndex = ScanDirectionIsForward(dir) ? pos->lastItem :
													   pos->firstItem;
	old = MemoryContextSwitchTo(descents->mcxt);
	found = btgettuple(scan, dir);
	MemoryContextSwitchTo(old);
	BTScanPosUnpinIfPinned(*pos);

	/* the scan will visit these pages, and count them, by itself */
	descents->owed += UncountSince(index, &before);
	return found;
}

/* Is the second scan on the page, and among the matches, of the scan? */
static bool
descents_has_caught_up(BTreeDescents *descents, IndexScanDesc scan)
{
	BTScanPos	ours = &((BTScanOpaque) descents->scan->opaque)->currPos;
	BTScanPos	theirs = &((BTScanOpaque) scan->opaque)->currPos;

	if (ours->currPage != theirs->currPage)
		return false;
	for (int i = ours->firstItem; i <= ours->lastItem; i++)
		if (ItemPointerEquals(&ours->items[i].heapTid,
							  &theirs->items[theirs->itemIndex].heapTid))
			return true;
	return false;
}

bool
BTreeDescentsNext(BTreeDescents *descents, IndexScanDesc scan,
				  ScanDirection dir, uint64 returned, BTreeLeaf *leaf)
{
	BTScanPos	pos;

	if (descents->lost)
		return false;
	if (descents->scan == NULL)
	{
		descents_start(descents, scan);
		do
		{
			CHECK_FOR_INTERRUPTS();
			if (++descents->caught_up > PAGES_TO_CATCH_UP + returned ||
				!descents_step(descents, dir))
			{
				descents->lost = true;
				return false;
			}
		} while (!descents_has_caught_up(descents, scan));
	}
	if (!descents_step(descents, dir))
	{
		descents->lost = true;
		return false;
	}

	pos = &((BTScanOpaque) descents->scan->opaque)->currPos;
	BTreeLeafInit(leaf, pos->currPage);
	if (ScanDirectionIsForward(dir))
		for (int i = pos->firstItem; i <= pos->lastItem; i++)
			BTreeLeafNote(leaf, &pos->items[i].heapTid);
	else
		for (int i = pos->lastItem; i >= pos->firstItem; i--)
			BTreeLeafNote(leaf, &pos->items[i].heapTid);
	return true;
}

int
BTreeDescentsOwed(BTreeDescents *descents)
{
	int			owed = descents->owed;

	descents->owed = 0;
	return owed;
}

void
BTreeDescentsForget(BTreeDescents *descents)
{
	/* the private scan holds no pin or lock, only memory */
	if (descents->scan)
		MemoryContextReset(descents->mcxt);
	descents->scan = NULL;
	descents->lost = false;
}
