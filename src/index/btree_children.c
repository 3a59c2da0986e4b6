/*-------------------------------------------------------------------------
 *
 * btree_children.c
 *		The leaf pages that a btree scan will come to, by their parents; see
 *		btree_children.h.
 *
 * A list goes from one page of level 1 to its sibling, as long as the bounds of
 * the leaf pages pass the scan's required keys.  A scan that stands on a leaf
 * finds its place in level 1 by that leaf's high key, which is the bound of the
 * leaf to its right.  A scan that has not begun finds it by its keys, as the
 * access method does.
 *
 * A scan with array keys ("= ANY") is a series of searches, one for each
 * combination of elements, in the order of the index.  Where the leaf pages of
 * one search end, the next combination is looked for on the same page of level
 * 1, or by a new search.  Of a scan that skips, only the search under way can
 * be listed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "compat_scan.h"
#include "index/btree_children.h"
#include "index/btree_leaf.h"
#include "index/btree_tuple.h"
#include "index/index_page.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "read/uncount.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* The most steps of a search, to the right or down. */
#define MAX_MOVES 32

/* The most combinations of array elements that one call searches for. */
#define MAX_COMBINATIONS 1024

/* Is a page an internal page of the level, as far as we rely on it? */
static bool
is_internal(Page page, uint32 level)
{
	BTPageOpaque opaque;

	if (PageIsNew(page) || !IndexPageHasSpecial(page, sizeof(BTPageOpaqueData)))
		return false;
	opaque = BTPageGetOpaque(page);
	return !P_ISLEAF(opaque) && !P_IGNORE(opaque) && !P_ISMETA(opaque) &&
		opaque->btpo_level == level &&
		PageGetMaxOffsetNumber(page) >= P_FIRSTDATAKEY(opaque) &&
		PageGetMaxOffsetNumber(page) <= MaxIndexTuplesPerPage;
}

/* The pivot tuple at an offset, or NULL if the page is damaged there. */
static IndexTuple
pivot_at(Relation index, Page page, OffsetNumber offnum)
{
	IndexTuple	itup = BTreeTupleAt(page, offnum);
	int			natts;

	if (itup == NULL || BTreeTupleIsPosting(itup))
		return NULL;
	natts = BTreeTupleGetNAtts(itup, index);
	if (natts > IndexRelationGetNumberOfAttributes(index) ||
		!BTreeTupleFits(itup, RelationGetDescr(index), natts))
		return NULL;
	return itup;
}

/*
 * How does a key compare with the tuple at an offset, as _bt_compare() says?
 * False if the page is damaged.
 */
static bool
compare(Relation index, BTScanInsert key, Page page, OffsetNumber offnum,
		int *result)
{
	if (offnum == P_FIRSTDATAKEY(BTPageGetOpaque(page)))
		*result = 1;			/* the first bound of a page says nothing */
	else if (pivot_at(index, page, offnum) == NULL ||
			 !_bt_check_natts(index, key->heapkeyspace, page, offnum))
		return false;
	else
		*result = _bt_compare(index, key, page, offnum);
	return true;
}

/*
 * The downlink to follow for a key: the last one whose bound is less than the
 * key, or, if key->nextkey, not greater.  Invalid if the page is damaged.
 */
static OffsetNumber
find_downlink(Relation index, BTScanInsert key, Page page)
{
	int			low = P_FIRSTDATAKEY(BTPageGetOpaque(page));
	int			high = PageGetMaxOffsetNumber(page);

	while (low < high)
	{
		int			middle = (low + high + 1) / 2;
		int			result;

		if (!compare(index, key, page, middle, &result))
			return InvalidOffsetNumber;
		if (result >= (key->nextkey ? 0 : 1))
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

/* Does a key lie beyond the high key of a page?  Yes, if that is damaged. */
static bool
lies_beyond(Relation index, BTScanInsert key, Page page)
{
	if (P_RIGHTMOST(BTPageGetOpaque(page)))
		return false;
	return pivot_at(index, page, P_HIKEY) == NULL ||
		!_bt_check_natts(index, key->heapkeyspace, page, P_HIKEY) ||
		_bt_compare(index, key, page, P_HIKEY) >= (key->nextkey ? 0 : 1);
}

/*
 * Does a key belong to the right of a page?  One without columns stands for the
 * first page, or the last one if we go backward.
 */
static bool
lies_to_the_right(Relation index, BTScanInsert key, Page page)
{
	return key->keysz > 0 ? lies_beyond(index, key, page) :
		key->backward && !P_RIGHTMOST(BTPageGetOpaque(page));
}

/* The downlink to follow for a key, on the page to which the key belongs. */
static OffsetNumber
downlink_of(Relation index, BTScanInsert key, Page page)
{
	if (key->keysz > 0)
		return find_downlink(index, key, page);
	return key->backward ? PageGetMaxOffsetNumber(page) :
		P_FIRSTDATAKEY(BTPageGetOpaque(page));
}

/*
 * Go down to a level of which no page has been looked at yet.  Returns the page
 * to be looked at, or InvalidBlockNumber.  If the root is of that level, it is
 * returned in *root, pinned and locked.
 */
static BlockNumber
descend(Relation index, BTScanInsert key, uint32 to_level, Buffer *root)
{
	Buffer		buffer = _bt_getroot(index, NULL, BT_READ);
	BlockNumber nblocks = RelationGetNumberOfBlocks(index);
	BlockNumber next = InvalidBlockNumber;
	uint32		level;

	if (!BufferIsValid(buffer))
		return InvalidBlockNumber;
	level = BTPageGetOpaque(BufferGetPage(buffer))->btpo_level;
	if (level == to_level)
	{
		*root = buffer;
		return InvalidBlockNumber;
	}
	for (int moves = 0; moves < MAX_MOVES && level > to_level; moves++)
	{
		Page		page = BufferGetPage(buffer);

		if (!is_internal(page, level))
			break;
		if (lies_to_the_right(index, key, page))
			next = BTPageGetOpaque(page)->btpo_next;
		else
		{
			OffsetNumber offnum = downlink_of(index, key, page);

			if (offnum == InvalidOffsetNumber ||
				BTreeTupleAt(page, offnum) == NULL)
				break;
			next = BTreeTupleGetDownLink(BTreeTupleAt(page, offnum));
			level--;
		}
		if (level == to_level || next >= nblocks)
			break;
		UnlockReleaseBuffer(buffer);
		buffer = ReadBuffer(index, next);
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
	}
	UnlockReleaseBuffer(buffer);
	return level == to_level && next < nblocks ? next : InvalidBlockNumber;
}

/* Go to the next combination of array elements; false after the last. */
static bool
next_combination(BTreeChildren *children)
{
	int			step = ScanDirectionIsForward(children->dir) ? 1 : -1;

	for (int i = children->narrays - 1; i >= 0; i--)
	{
		int			element = children->arrays[i].element + step;
		bool		within =
			element >= 0 && element < children->arrays[i].nelements;

		if (!within)
			element = step > 0 ? 0 : children->arrays[i].nelements - 1;
		children->arrays[i].element = element;
		children->keys[children->arrays[i].key].sk_argument =
			children->prefix.scankeys[children->arrays[i].prefix].sk_argument =
				children->arrays[i].elements[element];
		if (within)
			return true;
	}
	return false;
}

/* Does the scan go on where this bound stands between two leaf pages? */
static bool
passes_bound(BTreeChildren *children, Relation index, Page page,
			 OffsetNumber offnum)
{
	IndexTuple	itup = pivot_at(index, page, offnum);
	bool		failed;

	if (itup == NULL)
	{
		children->ended = true;
		return false;
	}
	return BTreeKeysPass(children->keys, children->nkeys,
						 RelationGetDescr(index), children->dir, itup,
						 BTreeTupleGetNAtts(itup, index), true, false,
						 &failed) ||
		!failed;
}

/* Add the leaf page of a downlink to the list. */
static void
tell(BTreeChildren *children, Page page, OffsetNumber offnum)
{
	IndexTuple	itup = BTreeTupleAt(page, offnum);
	BlockNumber block;

	if (itup == NULL)
	{
		children->ended = true;
		return;
	}
	block = BTreeTupleGetDownLink(itup);
	if (block != children->last && children->n < lengthof(children->blocks))
		children->blocks[children->n++] = block;
	children->last = block;
}

/*
 * Add the leaf pages from one downlink on; if it is Invalid, from the page's
 * first one, since the page before ended within the range of the scan.
 */
static void
tell_of_page(BTreeChildren *children, Relation index, Page page,
			 BlockNumber block, OffsetNumber offnum)
{
	BTPageOpaque opaque = BTPageGetOpaque(page);
	bool		forward = ScanDirectionIsForward(children->dir);
	OffsetNumber low = P_FIRSTDATAKEY(opaque);
	OffsetNumber high = PageGetMaxOffsetNumber(page);

	children->parent = block;
	children->next = InvalidBlockNumber;
	if (offnum == InvalidOffsetNumber)
		offnum = forward ? low : high;
	for (int i = 0; i < MAX_COMBINATIONS && !children->ended; i++)
	{
		bool		passes = true;

		tell(children, page, offnum);
		while (passes && !children->ended &&
			   (forward ? offnum < high : offnum > low))
		{
			passes = passes_bound(children, index, page,
								  forward ? offnum + 1 : offnum);
			if (!passes)
				break;
			offnum = forward ? offnum + 1 : offnum - 1;
			tell(children, page, offnum);
		}

		/* the bound of the page that follows backward stands on that page */
		if (passes && forward && !P_RIGHTMOST(opaque))
			passes = passes_bound(children, index, page, P_HIKEY);
		if (children->ended)
			return;
		if (passes && !(forward ? P_RIGHTMOST(opaque) : P_LEFTMOST(opaque)))
		{
			children->next = forward ? opaque->btpo_next : opaque->btpo_prev;
			return;
		}
		if (!next_combination(children))
		{
			children->ended = true;
			return;
		}

		/* is the next combination on this page, too? */
		if (forward ? lies_beyond(index, &children->prefix, page) :
					  !P_LEFTMOST(opaque))
			return;
		offnum = find_downlink(index, &children->prefix, page);
		if (offnum == InvalidOffsetNumber)
			children->ended = true;
	}
}

/* Is this a skip scan, which finds out by itself what values there are? */
static bool
skips(BTScanOpaque so)
{
	for (int i = 0; i < so->numArrayKeys; i++)
		if (so->arrayKeys[i].num_elems < 0)
			return true;
	return false;
}

/* Note the keys that end a scan of this direction. */
static bool
note_keys(BTreeChildren *children, Relation index, BTScanOpaque so)
{
	int			ends = ScanDirectionIsForward(children->dir) ? SK_BT_REQFWD :
		SK_BT_REQBKWD;

	children->nkeys = 0;
	for (int i = 0; i < so->numberOfKeys; i++)
	{
		ScanKey		key = &so->keyData[i];

		if ((key->sk_flags & ends) == 0)
			continue;
		if ((key->sk_flags & (SK_ROW_HEADER | SK_ROW_MEMBER)) != 0 ||
			children->nkeys == lengthof(children->keys) ||
			!LookaheadBTreeKeyIsSettled(index, key))
			return false;
		for (int j = 0; j < so->numArrayKeys; j++)
		{
			if (so->arrayKeys[j].scan_key != i)
				continue;
			if (children->narrays == lengthof(children->arrays))
				return false;
			children->arrays[children->narrays++].key = children->nkeys;
		}
		children->keys[children->nkeys++] = *key;
	}

	/* only a skip scan itself knows which values it will come to */
	if (skips(so))
		children->narrays = 0;
	return true;
}

/* Look up the function that compares a column with a key's argument. */
static void
note_comparison(ScanKey to, Relation index, const ScanKeyData *key)
{
	int			column = key->sk_attno - 1;
	RegProcedure function;

	if (key->sk_subtype == index->rd_opcintype[column] ||
		!OidIsValid(key->sk_subtype))
		ScanKeyEntryInitializeWithInfo(
			to, key->sk_flags, key->sk_attno, InvalidStrategy, key->sk_subtype,
			key->sk_collation,
			index_getprocinfo(index, key->sk_attno, BTORDER_PROC),
			key->sk_argument);
	else
	{
		function = get_opfamily_proc(index->rd_opfamily[column],
									 index->rd_opcintype[column],
									 key->sk_subtype, BTORDER_PROC);
		ScanKeyEntryInitialize(to, key->sk_flags, key->sk_attno,
							   InvalidStrategy, key->sk_subtype,
							   key->sk_collation, function, key->sk_argument);
	}
}

/*
 * Where does the scan, or each of its searches, begin?  That is told by its
 * equality keys on the first columns, and the bound on the one after them.
 */
static void
note_prefix(BTreeChildren *children, Relation index, BTScanOpaque so)
{
	BTScanInsert prefix = &children->prefix;
	bool		forward = ScanDirectionIsForward(children->dir);

	for (int i = 0; i < so->numberOfKeys; i++)
	{
		ScanKey		key = &so->keyData[i];
		bool		equal = key->sk_strategy == BTEqualStrategyNumber;
		bool		greater = key->sk_strategy > BTEqualStrategyNumber;

		if (key->sk_attno > prefix->keysz + 1 ||
			(key->sk_flags & (SK_BT_REQFWD | SK_BT_REQBKWD)) == 0 ||
			(key->sk_flags & SK_ROW_HEADER) != 0)
			return;
		if (key->sk_attno <= prefix->keysz || (!equal && greater != forward))
			continue;
		note_comparison(&prefix->scankeys[prefix->keysz++], index, key);
		prefix->nextkey = forward ?
			key->sk_strategy == BTGreaterStrategyNumber :
			key->sk_strategy != BTLessStrategyNumber;
		if (!equal)
			return;
	}
}

/* Note the elements of the arrays that end a search. */
static bool
note_arrays(BTreeChildren *children, BTScanOpaque so, bool from_start)
{
	bool		forward = ScanDirectionIsForward(children->dir);
	int			n = 0;

	for (int i = 0; i < so->numArrayKeys; i++)
	{
		BTArrayKeyInfo *array = &so->arrayKeys[i];
		ScanKey		key = &so->keyData[array->scan_key];
		int			element = array->cur_elem;

		if (array->num_elems == 0)
			return false;
		if ((key->sk_flags & (SK_BT_REQFWD | SK_BT_REQBKWD)) == 0)
			continue;
		if (key->sk_attno > children->prefix.keysz || n == children->narrays)
			return false;
		if (from_start)
			element = forward ? 0 : array->num_elems - 1;
		if (element < 0 || element >= array->num_elems)
			return false;
		children->arrays[n].element = element;
		children->arrays[n].nelements = array->num_elems;
		children->arrays[n].elements = array->elem_values;
		children->arrays[n].prefix = key->sk_attno - 1;
		children->keys[children->arrays[n].key].sk_argument =
			children->prefix.scankeys[key->sk_attno - 1].sk_argument =
				array->elem_values[element];
		n++;
	}
	return n == children->narrays;
}

/*
 * Look for the scan's place by the high key of its leaf page.  If it has none,
 * there is nothing to its right, and the last page is where it stands.
 */
static bool
note_place(BTreeChildren *children, IndexScanDesc scan)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;
	Relation	index = scan->indexRelation;
	bool		forward = ScanDirectionIsForward(children->dir);
	Buffer		buffer;
	Page		page;
	IndexTuple	high_key = NULL;
	bool		found = false;

	if (!BTScanPosIsValid(so->currPos) ||
		!(forward ? so->currPos.moreRight : so->currPos.moreLeft))
		return false;
	children->last = so->currPos.currPage;
	buffer = ReadBuffer(index, so->currPos.currPage);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	if (!PageIsNew(page) && IndexPageHasSpecial(page, sizeof(BTPageOpaqueData)))
	{
		found = P_RIGHTMOST(BTPageGetOpaque(page));
		if (!found && (high_key = pivot_at(index, page, P_HIKEY)) != NULL)
			high_key = CopyIndexTuple(high_key);
	}
	UnlockReleaseBuffer(buffer);
	if (high_key != NULL)
	{
		BTScanInsert key = _bt_mkscankey(index, high_key);

		memcpy(&children->prefix, key, offsetof(BTScanInsertData, scankeys));
		memcpy(children->prefix.scankeys, key->scankeys,
			   key->keysz * sizeof(ScanKeyData));

		/* the leaf to the right has this bound; our own has a lesser one */
		children->prefix.backward = true;
		children->prefix.nextkey = forward;
		pfree(key);
		return true;
	}
	return found && !forward;
}

bool
BTreeChildrenBegin(BTreeChildren *children, IndexScanDesc scan,
				   ScanDirection dir, uint32 level, bool from_start)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;
	Relation	index = scan->indexRelation;
	CountsBefore before;
	int64		hits;
	bool		known;

	children->next = children->parent = children->last = InvalidBlockNumber;
	children->n = children->narrays = 0;
	children->level = level;
	children->dir = dir;
	children->searching = false;
	children->ended = true;
	if (scan->parallel_scan != NULL || !so->qual_ok ||
		(from_start && skips(so)) || !note_keys(children, index, so))
		return false;

	memset(&children->prefix, 0, offsetof(BTScanInsertData, scankeys));
	before = CountsNow(index);
	hits = pgBufferUsage.shared_blks_hit;
	_bt_metaversion(index, &children->prefix.heapkeyspace,
					&children->prefix.allequalimage);
	children->prefix.backward = ScanDirectionIsBackward(dir);
	children->searches = children->narrays > 0 || from_start;
	if (children->searches)
	{
		note_prefix(children, index, so);
		known = note_arrays(children, so, from_start);
	}
	else
		known = note_place(children, scan);

	/* stock does not look this up: do not count it */
	(void) UncountSince(index, &before);
	pgBufferUsage.shared_blks_hit = Min(pgBufferUsage.shared_blks_hit, hits);
	children->ended = !known;
	return known;
}

/* Fill the list from the page of a search, or from the page after it. */
static void
examine(BTreeChildren *children, Relation index, BlockNumber block, Page page)
{
	bool		forward = ScanDirectionIsForward(children->dir);
	BTPageOpaque opaque;
	OffsetNumber offnum = InvalidOffsetNumber;

	if (!is_internal(page, children->level))
	{
		children->ended = true;
		return;
	}
	opaque = BTPageGetOpaque(page);
	if (children->searching)
	{
		if (lies_to_the_right(index, &children->prefix, page))
		{
			children->next = opaque->btpo_next;
			return;
		}
		children->searching = false;
		offnum = downlink_of(index, &children->prefix, page);
		children->ended = offnum == InvalidOffsetNumber;
	}
	else if ((forward ? opaque->btpo_prev : opaque->btpo_next) !=
			 children->parent)
		children->ended = true;
	else if (!forward && !passes_bound(children, index, page, P_HIKEY))
	{
		children->next = InvalidBlockNumber;
		children->ended |= !next_combination(children);
		return;
	}
	if (!children->ended)
		tell_of_page(children, index, page, block, offnum);
}

int
BTreeChildrenSearch(BTreeChildren *children, IndexScanDesc scan)
{
	Relation	index = scan->indexRelation;
	CountsBefore before = CountsNow(index);
	Buffer		root = InvalidBuffer;
	int			nread;

	children->n = 0;
	children->searching = true;
	children->next = descend(index, &children->prefix, children->level, &root);
	nread = UncountSince(index, &before);
	if (BufferIsValid(root))
	{
		examine(children, index, BufferGetBlockNumber(root),
				BufferGetPage(root));
		UnlockReleaseBuffer(root);
	}
	else
		children->ended = children->next == InvalidBlockNumber;
	return children->searches ? nread : 0;
}

void
BTreeChildrenExamine(BTreeChildren *children, IndexScanDesc scan, Buffer buffer)
{
	children->n = 0;
	if (!BufferIsValid(buffer))
	{
		children->ended = true;
		return;
	}
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	examine(children, scan->indexRelation, children->next,
			BufferGetPage(buffer));
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
}
