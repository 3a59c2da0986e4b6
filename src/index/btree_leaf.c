/*-------------------------------------------------------------------------
 *
 * btree_leaf.c
 *		Leaf pages of a btree that a scan has not yet reached.
 *
 * The entries of a page that was read ahead of the scan are tested against the
 * scan's preprocessed keys, and the heap blocks of those that match are noted.
 * The scan reads the page again when it arrives.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat_scan.h"
#include "index/btree_keys.h"
#include "index/btree_leaf.h"
#include "index/index_page.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

bool
BTreeLeafKeysAreUsual(IndexScanDesc scan)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;

	if (so->numArrayKeys > 0)
		return false;
	for (int i = 0; i < so->numberOfKeys; i++)
		if (!KeyIsUsual(&so->keyData[i]))
			return false;
	return true;
}

bool
BTreeScanSkips(IndexScanDesc scan)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;

	for (int i = 0; i < so->numArrayKeys; i++)
		if (so->arrayKeys[i].num_elems < 0)
			return true;
	return false;
}

BlockNumber
BTreeNextLeafOfScan(IndexScanDesc scan, ScanDirection dir)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;
	BlockNumber next;

	Assert(scan->parallel_scan == NULL);
	if (!BTScanPosIsValid(so->currPos) || !BTreeLeafKeysAreUsual(scan))
		return InvalidBlockNumber;

	if (ScanDirectionIsForward(dir))
		next = so->currPos.moreRight ? so->currPos.nextPage : P_NONE;
	else
		next = so->currPos.moreLeft ? LookaheadPreviousLeaf(&so->currPos) :
									  P_NONE;
	return next == P_NONE ? InvalidBlockNumber : next;
}

BTreeLeaf *
BTreeLeafCreate(MemoryContext mcxt)
{
	BTreeLeaf  *leaf = MemoryContextAlloc(mcxt, sizeof(BTreeLeaf));

	leaf->size = 4;				/* arrays often find one entry on a page */
	leaf->blocks = MemoryContextAlloc(mcxt, leaf->size * sizeof(BlockNumber));
	return leaf;
}

void
BTreeLeafDestroy(BTreeLeaf *leaf)
{
	pfree(leaf->blocks);
	pfree(leaf);
}

void
BTreeLeafInit(BTreeLeaf *leaf, BlockNumber page)
{
	leaf->page = page;
	leaf->next = InvalidBlockNumber;
	leaf->nblocks = 0;
}

void
BTreeLeafGrow(BTreeLeaf *leaf)
{
	leaf->blocks = repalloc_array(leaf->blocks, BlockNumber, 2 * leaf->size);
	leaf->size *= 2;
}

/*
 * Add the heap block or blocks of a matching tuple, in the order in which the
 * scan will return them.
 */
static bool
btree_leaf_note_tuple(BTreeLeaf *leaf, IndexTuple itup, ScanDirection dir)
{
	bool		reversed = LookaheadPostingIsReversed(dir);
	int			n = BTreeTupleIsPosting(itup) ? BTreeTupleGetNPosting(itup) : 1;

	if (leaf->nblocks + n > MaxTIDsPerBTreePage)
		return false;
	if (!BTreeTupleIsPosting(itup))
		BTreeLeafNote(leaf, &itup->t_tid);
	else
		for (int i = 0; i < n; i++)
			BTreeLeafNote(leaf, BTreeTupleGetPostingN(
									itup, reversed ? n - 1 - i : i));
	return true;
}

/* Do the work of BTreeLeafExamine() while the page is locked. */
static bool
btree_leaf_examine_page(Page page, BTreeLeaf *leaf, const BTreeKeys *keys,
			 bool ignore_killed, BlockNumber from)
{
	bool		forward = ScanDirectionIsForward(keys->dir);
	int			natts = IndexRelationGetNumberOfAttributes(keys->index);
	BTreeMatches matches = {.keys = keys,
							.page = page,
							.ignore_killed = ignore_killed};
	BTPageOpaque opaque;
	OffsetNumber low,
				high;
	IndexTuple	itup;
	bool		ended = false;

	if (!BTreePageIsOfLevel(page, 0))
		return false;
	opaque = BTPageGetOpaque(page);
	if (!forward && opaque->btpo_next != from)
		return false;
	low = P_FIRSTDATAKEY(opaque);
	high = PageGetMaxOffsetNumber(page);

	/*
	 * If the last entry, in scan order, passes the keys that end the scan
	 * when they fail, so do all before it.
	 */
	if (low <= high)
	{
		itup = BTreeTupleAt(keys->index, page, forward ? high : low,
							keys->natts);
		if (itup == NULL || BTreeTupleIsPivot(itup))
			return false;
		if (!BTreeKeysPass(keys, itup, natts, BTREE_REQUIRED_KEYS, &ended))
			matches.tests = BTREE_ALL_KEYS;
		else if (!keys->all_required)
			matches.tests = BTREE_OTHER_KEYS;
	}
	matches.next = forward ? low : high;
	matches.left = high + 1 - low;
	while ((itup = BTreeMatchesNext(&matches)) != NULL)
		if (!btree_leaf_note_tuple(leaf, itup, keys->dir))
			return false;
	if (matches.damaged)
		return false;

	/* the scan asks the high key whether there is more to the right */
	ended = matches.ended;
	if (forward && !ended && !P_RIGHTMOST(opaque))
	{
		itup = BTreeTupleAt(keys->index, page, P_HIKEY, keys->natts);
		if (itup == NULL)
			return false;
		ended = !BTreeKeysPass(keys, itup,
							   BTreeTupleGetNAtts(itup, keys->index),
							   BTREE_REQUIRED_KEYS, &ended);
	}
	leaf->next = forward ? opaque->btpo_next : opaque->btpo_prev;
	if (ended || leaf->next == P_NONE)
		leaf->next = InvalidBlockNumber;
	return true;
}

bool
BTreeLeafExamine(BTreeLeaf *leaf, BlockNumber page, Buffer buffer,
				 IndexScanDesc scan, ScanDirection dir, BlockNumber from)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;
	BTreeKeys	keys = BTreeKeysMake(scan->indexRelation, dir, so->keyData,
									 so->numberOfKeys);
	bool		known;

	BTreeLeafInit(leaf, page);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	known = btree_leaf_examine_page(BufferGetPage(buffer), leaf, &keys,
						 scan->ignore_killed_tuples, from);
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	return known;
}
