/*-------------------------------------------------------------------------
 *
 * btree_leaf.c
 *		Leaf pages of a btree that a scan has not yet reached.
 *
 * The entries of a page that was read ahead of the scan are tested against the
 * scan's preprocessed keys, and the heap blocks of those that match are noted.
 * The scan reads the page again when it arrives.
 *
 * Nothing that is found here decides what the scan returns, so every doubt
 * (a page split, deleted or damaged, keys of an unusual kind) is answered by
 * knowing nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "compat_scan.h"
#include "index/btree_leaf.h"
#include "index/btree_tuple.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/* Keys that only _bt_checkkeys() can test. */
#define UNUSUAL_KEY (SK_ROW_HEADER | SK_ROW_MEMBER | SK_SEARCHARRAY)

/* Keys that end a scan in one direction or the other when they fail. */
#define REQUIRED_KEY (SK_BT_REQFWD | SK_BT_REQBKWD)

bool
BTreeLeafKeysAreUsual(IndexScanDesc scan)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;

	if (so->numArrayKeys > 0)
		return false;
	for (int i = 0; i < so->numberOfKeys; i++)
		if (so->keyData[i].sk_flags & UNUSUAL_KEY)
			return false;
	return true;
}

BlockNumber
BTreeNextLeafOfScan(IndexScanDesc scan, ScanDirection dir)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;
	BlockNumber next;

	if (scan->parallel_scan != NULL || !BTScanPosIsValid(so->currPos) ||
		!BTreeLeafKeysAreUsual(scan))
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
	leaf->size *= 2;
	leaf->blocks = repalloc_array(leaf->blocks, BlockNumber, leaf->size);
}

bool
BTreeKeysPass(const ScanKeyData *keys, int nkeys, TupleDesc tupdesc,
			  ScanDirection dir, IndexTuple itup, int natts, bool required,
			  bool others, bool *required_failed)
{
	int			reqflag = ScanDirectionIsForward(dir) ? SK_BT_REQFWD :
		SK_BT_REQBKWD;
	int			last = 0;

	*required_failed = false;
	if (nkeys == 0)
		return true;

	/* keys that do not end a scan may follow those of later columns */
	for (int i = 0; i < nkeys; i++)
		last = Max(last, keys[i].sk_attno);
	if (!BTreeTupleFits(itup, tupdesc, Min(natts, last)))
	{
		*required_failed = true;
		return false;
	}
	for (int i = 0; i < nkeys; i++)
	{
		ScanKey		key = unconstify(ScanKeyData *, &keys[i]);
		bool		either = (key->sk_flags & REQUIRED_KEY) != 0;
		bool		ends = (key->sk_flags & reqflag) != 0;
		bool		pass;
		bool		isnull;
		Datum		value;

		if (either ? !required : !others)
			continue;
		if (key->sk_attno > natts)
			continue;
		value = index_getattr(itup, key->sk_attno, tupdesc, &isnull);
		if (key->sk_flags & SK_ISNULL)
			pass = (key->sk_flags & SK_SEARCHNULL) ? isnull : !isnull;
		else if (isnull)
		{
			pass = false;

			/* where NULLs are sorted last, nothing follows them */
			if (either && ScanDirectionIsForward(dir) ==
				((key->sk_flags & SK_BT_NULLS_FIRST) == 0))
				ends = true;
		}
		else
			pass = DatumGetBool(FunctionCall2Coll(
				&key->sk_func, key->sk_collation, value, key->sk_argument));
		if (!pass)
		{
			*required_failed = ends;
			return false;
		}
	}
	return true;
}

/* Are all keys of a scan such that some scan ends when they fail? */
static bool
all_keys_required(IndexScanDesc scan)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;

	for (int i = 0; i < so->numberOfKeys; i++)
		if ((so->keyData[i].sk_flags & REQUIRED_KEY) == 0)
			return false;
	return true;
}

/* Does a tuple pass the scan's keys?  See BTreeKeysPass(). */
static inline bool
keys_pass(IndexScanDesc scan, ScanDirection dir, IndexTuple itup, int natts,
		  bool required, bool others, bool *required_failed)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;

	return BTreeKeysPass(so->keyData, so->numberOfKeys,
						 RelationGetDescr(scan->indexRelation), dir, itup,
						 natts, required, others, required_failed);
}

/*
 * Add the heap block or blocks of a matching tuple, in the order in which the
 * scan will return them.
 */
static bool
note_tuple(BTreeLeaf *leaf, IndexTuple itup, ScanDirection dir)
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
examine_page(Page page, BTreeLeaf *leaf, IndexScanDesc scan, ScanDirection dir,
			 BlockNumber from)
{
	bool		forward = ScanDirectionIsForward(dir);
	int			natts = IndexRelationGetNumberOfAttributes(scan->indexRelation);
	BTPageOpaque opaque;
	OffsetNumber low,
				high;
	IndexTuple	itup;
	bool		test_required,
				test_any,
				failed,
				ended = false;

	if (PageIsNew(page) ||
		PageGetSpecialSize(page) != MAXALIGN(sizeof(BTPageOpaqueData)))
		return false;
	opaque = BTPageGetOpaque(page);
	if (!P_ISLEAF(opaque) || P_IGNORE(opaque) || P_ISMETA(opaque) ||
		(!forward && opaque->btpo_next != from))
		return false;
	low = P_FIRSTDATAKEY(opaque);
	high = PageGetMaxOffsetNumber(page);
	if (high > MaxIndexTuplesPerPage)
		return false;

	/*
	 * If the last entry, in scan order, passes the keys that end the scan
	 * when they fail, so do all before it.
	 */
	test_required = true;
	if (low <= high)
	{
		itup = BTreeTupleAt(page, forward ? high : low);
		if (itup == NULL || BTreeTupleIsPivot(itup))
			return false;
		test_required =
			!keys_pass(scan, dir, itup, natts, true, false, &failed);
	}
	test_any = test_required || !all_keys_required(scan);

	for (int i = 0; i <= (int) high - (int) low && !ended; i++)
	{
		OffsetNumber offnum = forward ? low + i : high - i;
		bool		killed = scan->ignore_killed_tuples &&
			ItemIdIsDead(PageGetItemId(page, offnum));

		/* a scan backward asks the first tuple whether to go on, though dead */
		if (killed && (forward || offnum > low))
			continue;
		itup = BTreeTupleAt(page, offnum);
		if (itup == NULL || BTreeTupleIsPivot(itup))
			return false;
		if (!test_any ||
			keys_pass(scan, dir, itup, natts, test_required, true, &failed))
		{
			if (!killed && !note_tuple(leaf, itup, dir))
				return false;
		}
		else
			ended = failed;
	}

	/* the scan asks the high key whether there is more to the right */
	if (forward && !ended && !P_RIGHTMOST(opaque))
	{
		itup = BTreeTupleAt(page, P_HIKEY);
		if (itup == NULL)
			return false;
		ended = !keys_pass(scan, dir, itup,
						   BTreeTupleGetNAtts(itup, scan->indexRelation),
						   true, false, &failed);
	}
	if (!ended)
	{
		leaf->next = forward ? opaque->btpo_next : opaque->btpo_prev;
		if (leaf->next == P_NONE)
			leaf->next = InvalidBlockNumber;
	}
	return true;
}

bool
BTreeLeafExamine(BTreeLeaf *leaf, BlockNumber page, Buffer buffer,
				 IndexScanDesc scan, ScanDirection dir, BlockNumber from)
{
	bool		known;

	BTreeLeafInit(leaf, page);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	known = examine_page(BufferGetPage(buffer), leaf, scan, dir, from);
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	return known;
}
