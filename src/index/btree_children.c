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

#include "compat_scan.h"
#include "index/btree_children.h"
#include "index/btree_leaf.h"
#include "index/index_page.h"
#include "read/page_read.h"
#include "read/uncount.h"
#include "storage/bufmgr.h"

/* The most pages that a search visits. */
#define MAX_MOVES 32

/* The most combinations of array elements that one call searches for. */
#define MAX_COMBINATIONS 1024

/* Make an element the current one of an array. */
static void
children_set_element(BTreeChildren *children, int array, int element)
{
	BTreeChildrenArray *it = &children->arrays[array];

	it->element = element;
	children->key_data[it->key].sk_argument =
		children->search.scankeys[it->column].sk_argument =
			it->elements[element];
}

/* Go to the next combination of array elements; false after the last. */
static bool
children_next_combination(BTreeChildren *children)
{
	int			step = ScanDirectionIsForward(children->keys.dir) ? 1 : -1;

	for (int i = children->narrays - 1; i >= 0; i--)
	{
		int			n = children->arrays[i].nelements;
		int			element = children->arrays[i].element + step;

		children_set_element(children, i, (element + n) % n);
		if (element >= 0 && element < n)
			return true;
	}
	return false;
}

/* Does the scan go on where this bound stands between two leaf pages? */
static bool
children_passes_bound(BTreeChildren *children, Page page, OffsetNumber offnum)
{
	const BTreeKeys *keys = &children->keys;
	IndexTuple	itup = BTreeTupleAt(keys->index, page, offnum, keys->natts);
	bool		failed = false;

	if (itup == NULL || BTreeTupleIsPosting(itup))
	{
		children->ended = true;
		return false;
	}
	return BTreeKeysPass(keys, itup, BTreeTupleGetNAtts(itup, keys->index),
						 BTREE_REQUIRED_KEYS, &failed) ||
		!failed;
}

/* Add the leaf page of a downlink to the list. */
static void
children_add_child(BTreeChildren *children, Page page, OffsetNumber offnum)
{
	IndexTuple	itup = BTreeTupleAt(children->keys.index, page, offnum, 0);
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

/* Where does the search lead on a page of the level that is looked at? */
static BTreeFound
children_search_page(BTreeChildren *children, Page page, OffsetNumber *offnum)
{
	IndexPlace	place = {.level = children->level};
	BTreeFound	found = BTreeSearchPage(&children->search,
										children->keys.index, page, &place,
										offnum);

	children->ended |= found == BTREE_DAMAGED;
	if (found == BTREE_TO_THE_RIGHT)
		children->next = place.page;
	return found;
}

/*
 * Add the leaf pages from one downlink on, as far as the scan goes.  Return
 * false if it goes on beyond the page.
 */
static bool
children_add_children(BTreeChildren *children, Page page, OffsetNumber offnum)
{
	BTPageOpaque opaque = BTPageGetOpaque(page);
	bool		forward = ScanDirectionIsForward(children->keys.dir);
	OffsetNumber end =
		forward ? PageGetMaxOffsetNumber(page) : P_FIRSTDATAKEY(opaque);

	for (;;)
	{
		/* the bound of the page that follows backward stands on that page */
		bool		is_last = offnum == end;
		OffsetNumber bound = !forward ? offnum :
			is_last ? P_HIKEY : offnum + 1;

		children_add_child(children, page, offnum);
		if (is_last && (forward ? P_RIGHTMOST(opaque) : P_LEFTMOST(opaque)))
			return true;
		if ((forward || !is_last) &&
			!children_passes_bound(children, page, bound))
			return true;
		if (is_last || children->ended)
			return children->ended;
		offnum += forward ? 1 : -1;
	}
}

/*
 * Add the leaf pages from one downlink on, and those of further combinations
 * that are found on the same page.
 */
static void
children_add_from(BTreeChildren *children, Page page, OffsetNumber offnum)
{
	BTPageOpaque opaque = BTPageGetOpaque(page);
	bool		forward = ScanDirectionIsForward(children->keys.dir);

	for (int i = 0; i < MAX_COMBINATIONS; i++)
	{
		if (!children_add_children(children, page, offnum))
		{
			children->next = forward ? opaque->btpo_next : opaque->btpo_prev;
			return;
		}
		if (children->ended || !children_next_combination(children))
		{
			children->ended = true;
			return;
		}

		/* a new search finds the combinations that are not on this page */
		if (!forward && !P_LEFTMOST(opaque))
			return;
		if (children_search_page(children, page, &offnum) != BTREE_HERE)
		{
			children->next = InvalidBlockNumber;
			return;
		}
	}
}

/* Note the keys that end a scan of this direction. */
static bool
children_note_keys(BTreeChildren *children, IndexScanDesc scan,
				   ScanDirection dir)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;
	Relation	index = scan->indexRelation;
	int			ends =
		ScanDirectionIsForward(dir) ? SK_BT_REQFWD : SK_BT_REQBKWD;
	int			nkeys = 0;

	for (int i = 0; i < so->numberOfKeys; i++)
	{
		ScanKey		key = &so->keyData[i];

		if ((key->sk_flags & ends) == 0)
			continue;
		if ((key->sk_flags & (SK_ROW_HEADER | SK_ROW_MEMBER)) != 0 ||
			nkeys == lengthof(children->key_data) ||
			!LookaheadBTreeKeyHasValue(index, key))
			return false;
		for (int j = 0; j < so->numArrayKeys; j++)
		{
			if (so->arrayKeys[j].scan_key != i)
				continue;
			if (children->narrays == lengthof(children->arrays))
				return false;
			children->arrays[children->narrays++].key = nkeys;
		}

		/* of an array, the current element is the key */
		children->key_data[nkeys] = *key;
		children->key_data[nkeys++].sk_flags &= ~SK_SEARCHARRAY;
	}
	children->keys = BTreeKeysMake(index, dir, children->key_data, nkeys);

	/* only a skip scan itself knows which values it will come to */
	if (BTreeScanSkips(scan))
		children->narrays = 0;
	return true;
}

/* Note the elements of the arrays that end a search. */
static bool
children_note_arrays(BTreeChildren *children, BTScanOpaque so, bool from_start)
{
	bool		forward = ScanDirectionIsForward(children->keys.dir);
	int			n = 0;

	for (int i = 0; i < so->numArrayKeys; i++)
	{
		BTArrayKeyInfo *array = &so->arrayKeys[i];
		ScanKey		key = &so->keyData[array->scan_key];
		int			element = array->cur_elem;

		if ((key->sk_flags & (SK_BT_REQFWD | SK_BT_REQBKWD)) == 0)
			continue;
		if (key->sk_attno > children->search.keysz || n == children->narrays)
			return false;
		if (from_start)
			element = forward ? 0 : array->num_elems - 1;
		if (element < 0 || element >= array->num_elems)
			return false;
		children->arrays[n].nelements = array->num_elems;
		children->arrays[n].elements = array->elem_values;
		children->arrays[n].column = key->sk_attno - 1;
		children_set_element(children, n++, element);
	}
	return n == children->narrays;
}

/*
 * Look for the scan's place by the high key of its leaf page.  If it has none,
 * there is nothing to its right, and the last page is where it stands.
 */
static bool
children_note_place(BTreeChildren *children, IndexScanDesc scan)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;
	Relation	index = scan->indexRelation;
	bool		forward = ScanDirectionIsForward(children->keys.dir);
	IndexTuple	high_key = NULL;
	bool		is_last = false;
	Buffer		buffer;
	Page		page;
	BTScanInsert key;

	if (!BTScanPosIsValid(so->currPos) ||
		!(forward ? so->currPos.moreRight : so->currPos.moreLeft))
		return false;
	children->last = so->currPos.currPage;
	buffer = ReadBuffer(index, so->currPos.currPage);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	if (BTreePageIsOfLevel(page, 0))
	{
		is_last = P_RIGHTMOST(BTPageGetOpaque(page));
		if (!is_last)
			high_key = BTreeTupleAt(index, page, P_HIKEY, INDEX_MAX_KEYS);
		if (high_key != NULL)
			high_key = BTreeTupleIsPosting(high_key) ? NULL :
				CopyIndexTuple(high_key);
	}
	UnlockReleaseBuffer(buffer);
	if (high_key == NULL)
		return is_last && !forward;
	key = _bt_mkscankey(index, high_key);

	/* it has columns for which the scan has no keys */
	for (int i = 1; i <= key->keysz; i++)
		if (BTreeColumnRefusal(index, i) != NOT_REFUSED)
			return false;
	memcpy(&children->search, key, offsetof(BTScanInsertData, scankeys));
	memcpy(children->search.scankeys, key->scankeys,
		   key->keysz * sizeof(ScanKeyData));

	/* the leaf to the right has this bound; our own has a lesser one */
	children->search.backward = true;
	children->search.nextkey = forward;
	pfree(key);
	return true;
}

bool
BTreeChildrenBegin(BTreeChildren *children, IndexScanDesc scan,
				   ScanDirection dir, uint32 level, bool from_start)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;
	Relation	index = scan->indexRelation;
	CountsBefore before;
	BufferUsage usage = pgBufferUsage;
	bool		known;

	children->next = children->parent = children->last = InvalidBlockNumber;
	children->n = children->narrays = 0;
	children->level = level;
	children->searching = false;
	children->ended = true;
	if (!so->qual_ok || (from_start && BTreeScanSkips(scan)) ||
		!children_note_keys(children, scan, dir))
		return false;
	children->searches = children->narrays > 0 || from_start;
	before = CountsNow(index);
	BTreeSearchInit(&children->search, index,
					so->keyData, children->searches ? so->numberOfKeys : 0, dir,
					NULL);
	known = children->searches ?
		children_note_arrays(children, so, from_start) :
		children_note_place(children, scan);

	/* stock does not look this up: do not count it */
	(void) UncountSince(index, &before);
	UncountCatalogs(&usage);
	children->ended = !known;
	return known;
}

/* Fill the list from page "next", which is locked. */
static void
children_examine(BTreeChildren *children, Page page)
{
	BlockNumber block = children->next;
	bool		forward = ScanDirectionIsForward(children->keys.dir);
	BTPageOpaque opaque;
	OffsetNumber offnum;

	children->next = InvalidBlockNumber;
	children->ended = !BTreePageIsOfLevel(page, children->level);
	if (children->ended)
		return;
	opaque = BTPageGetOpaque(page);
	if (children->searching)
	{
		if (children_search_page(children, page, &offnum) != BTREE_HERE)
			return;
		children->searching = false;
	}
	else
	{
		/* the page before ended within the range of the scan */
		children->ended = (forward ? opaque->btpo_prev : opaque->btpo_next) !=
			children->parent;
		if (children->ended)
			return;
		if (!forward && !children_passes_bound(children, page, P_HIKEY))
		{
			children->ended |= !children_next_combination(children);
			return;
		}
		offnum =
			forward ? P_FIRSTDATAKEY(opaque) : PageGetMaxOffsetNumber(page);
	}
	children->parent = block;
	children_add_from(children, page, offnum);
}

/*
 * Go down to the page of the level that is looked at, which is not looked at
 * yet.  The server's own look at the root keeps the copy of the metapage up to
 * date, which tells where the root is.
 */
static BlockNumber
children_descend(BTreeChildren *children)
{
	Relation	index = children->keys.index;
	BlockNumber nblocks = RelationGetNumberOfBlocks(index);
	Buffer		buffer = _bt_getroot(index, NULL, BT_READ);
	IndexPlace	place;
	OffsetNumber offnum;

	if (!BufferIsValid(buffer))
		return InvalidBlockNumber;
	UnlockReleaseBuffer(buffer);
	if (!BTreeSearchRoot(&children->search, index, &place))
		return InvalidBlockNumber;
	for (int moves = 0; place.page < nblocks; moves++)
	{
		BTreeFound	found;

		if (place.level <= (int) children->level)
			return place.level == (int) children->level ? place.page :
														  InvalidBlockNumber;
		if (moves == MAX_MOVES)
			break;
		buffer = PageReadIfSound(index, place.page);
		if (!BufferIsValid(buffer))
			break;
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		found = BTreeSearchPage(&children->search, index,
								BufferGetPage(buffer), &place, &offnum);
		UnlockReleaseBuffer(buffer);
		if (found == BTREE_DAMAGED)
			break;
	}
	return InvalidBlockNumber;
}

int
BTreeChildrenSearch(BTreeChildren *children)
{
	CountsBefore before = CountsNow(children->keys.index);
	int			nread;

	children->n = 0;
	children->searching = true;
	children->next = children_descend(children);
	children->ended = children->next == InvalidBlockNumber;
	nread = UncountSince(children->keys.index, &before);
	return children->searches ? nread : 0;
}

void
BTreeChildrenExamine(BTreeChildren *children, Buffer buffer)
{
	children->n = 0;
	if (!BufferIsValid(buffer))
	{
		children->ended = true;
		return;
	}
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	children_examine(children, BufferGetPage(buffer));
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
}
