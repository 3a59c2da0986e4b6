/*-------------------------------------------------------------------------
 *
 * entries_ahead.c
 *		The heap blocks of the entries that an index scan will return next;
 *		see entries_ahead.h.
 *
 * The leaf pages that follow the scan's current page are kept in scan order,
 * as lists of heap blocks, until the scan arrives there.  Invariant: what was
 * given last is entry "entry" of leaves[leaf], or, if leaf is -1, of the scan's
 * own list; and it is no entry that the scan has left behind.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "catalog/pg_am_d.h"
#include "index/btree_descents.h"
#include "index/btree_leaf.h"
#include "index/scan_position.h"
#include "miscadmin.h"
#include "scan/entries_ahead.h"
#include "read/page_read.h"
#include "utils/rel.h"

/* The most leaf pages known ahead. */
#define MAX_LEAVES 256

/*
 * A second scan searches for the next match, however many pages lie before it.
 * So it is not begun before the scan has visited this number of pages: most of
 * the scans that are abandoned are abandoned on their first page.
 */
#define PAGES_BEFORE_DESCENTS 2

/*
 * Nor, where the scan may be left, before it has returned as many entries as
 * the index has pages, but for so many: there may be no next match, and the
 * search for it then goes through the rest of the index.
 */
#define PAGES_IN_VAIN 64

struct EntriesAhead
{
	MemoryContext mcxt;
	Relation	index;
	bool		is_btree;
	int			max_entries;
	const void *owner;			/* owner of the reads */
	ScanDirection dir;

	/* where the scan stood when it was looked at last */
	BlockNumber page;
	int			current;
	uint64		returned;
	int			pages;			/* visited since the scan was begun */
	uint64		begun;			/* "returned" when it was begun */

	/* the entry that was given to the caller last */
	int			leaf;
	int			entry;
	uint64		ordinal;

	/* the leaf pages that come after the current one, in scan order */
	int			nleaves;
	int			nentries;		/* number of entries on all of them */
	int			size;			/* of "leaves", the unused of which may be NULL */
	BTreeLeaf **leaves;
	bool		is_reading;		/* "reading" is the page after them */
	PageRead	reading;
	bool		dead_end;		/* nothing can be learnt of that page */
	BTreeDescents *descents;	/* finds that page where no page tells of it */
	bool		may_be_left;	/* before its end, at any row */
	LeavesAhead *reading_more;	/* reads further leaf pages, or NULL */
	int64		rows;
	int			owed;
};

EntriesAhead *
EntriesAheadCreate(MemoryContext mcxt, Relation index, int max_entries,
				   const void *owner)
{
	EntriesAhead *ahead = MemoryContextAllocZero(mcxt, sizeof(EntriesAhead));

	ahead->mcxt = mcxt;
	ahead->index = index;
	ahead->is_btree = index->rd_rel->relam == BTREE_AM_OID;
	ahead->max_entries = max_entries;
	ahead->owner = owner;
	ahead->page = InvalidBlockNumber;
	ahead->leaf = -1;
	return ahead;
}

void
EntriesAheadSetLeaves(EntriesAhead *ahead, LeavesAhead *leaves, int64 rows)
{
	ahead->reading_more = leaves;
	ahead->rows = rows;
}

void
EntriesAheadSetMayBeLeft(EntriesAhead *ahead, bool may_be_left)
{
	ahead->may_be_left = may_be_left;
}

uint64
EntriesAheadOrdinal(const EntriesAhead *ahead)
{
	return ahead->ordinal;
}

int
EntriesAheadOwed(EntriesAhead *ahead)
{
	int			owed = ahead->owed;

	ahead->owed = 0;
	if (ahead->descents != NULL)
		owed += BTreeDescentsOwed(ahead->descents);
	return owed;
}

/* Remove the first of our leaves, which the scan has reached or left behind. */
static void
remove_first_leaf(EntriesAhead *ahead)
{
	BTreeLeaf  *leaf = ahead->leaves[0];

	ahead->nleaves--;
	ahead->nentries -= leaf->nblocks;
	memmove(&ahead->leaves[0], &ahead->leaves[1],
			ahead->nleaves * sizeof(BTreeLeaf *));
	ahead->leaves[ahead->nleaves] = leaf;	/* to be used again */
	if (ahead->leaf >= 0)
		ahead->leaf--;
}

/* Start giving from the entry after the current one. */
static void
forget(EntriesAhead *ahead)
{
	ahead->nleaves = 0;
	ahead->nentries = 0;
	ahead->is_reading = false;
	ahead->dead_end = false;
	if (ahead->descents)
		BTreeDescentsReset(ahead->descents);
	ahead->leaf = -1;
	ahead->entry = ahead->current;
	ahead->ordinal = ahead->returned;
}

/*
 * The scan has moved to another page.  If that is one of our leaves, what was
 * given of it counts as given of the scan's current page.  Return false if it
 * is none of them although it should be.
 */
static bool
arrive(EntriesAhead *ahead, const ScanPosition *position, int step)
{
	int			first = step > 0 ? position->first : position->last;
	int			arrived = 0;

	while (arrived < ahead->nleaves &&
		   ahead->leaves[arrived]->page != position->page)
		arrived++;
	if (arrived == ahead->nleaves)
		return false;

	/* pages that hold no match are passed over by the scan, too */
	for (; arrived > 0; arrived--)
	{
		if (ahead->leaf <= 0)
			ahead->leaf = ahead->entry = -1;	/* the scan has overtaken us */
		remove_first_leaf(ahead);
		ahead->pages++;
	}
	if (ahead->leaf == 0)
		ahead->entry = first + step * ahead->entry;
	else if (ahead->leaf == -1)
		ahead->entry = position->current;
	remove_first_leaf(ahead);
	ahead->pages++;
	return true;
}

bool
EntriesAheadFollow(EntriesAhead *ahead, IndexScanDesc scan, ScanDirection dir,
				   uint64 returned, bool anew)
{
	ScanPosition position = ScanPositionOf(scan);
	int			step = ScanDirectionIsForward(dir) ? 1 : -1;
	int			steps = (int) (returned - ahead->returned);
	bool		first = ScanDirectionIsNoMovement(ahead->dir);
	bool		expected = dir == ahead->dir && !anew;
	bool		known = expected;
	int			pages = 1;

	if (expected && position.page == ahead->page)
		expected = known =
			position.current == ahead->current + step * steps;
	else if (expected && ahead->nleaves > 0)
		expected = known = arrive(ahead, &position, step);
	else if (expected)
	{
		/* nothing was known of this page, so nothing has proved wrong */
		expected = ahead->ordinal <= returned;
		known = false;
		pages = ahead->pages + 1;
	}
	ahead->page = position.page;
	ahead->current = position.current;
	ahead->returned = returned;
	ahead->dir = dir;
	if (!known)
	{
		ahead->pages = pages;
		if (pages == 1)
			ahead->begun = returned;
		forget(ahead);
	}

	/* never give what has been returned */
	if (ahead->leaf == -1)
	{
		if ((ahead->entry - ahead->current) * step < 0)
			ahead->entry = ahead->current;
		ahead->ordinal = returned + (ahead->entry - ahead->current) * step;
	}
	return expected || first;
}

/* Learn about the leaf page that follows, by reading it ahead. */
static bool
read_leaf(EntriesAhead *ahead, IndexScanDesc scan, bool wait, BTreeLeaf *leaf)
{
	BTreeLeaf  *before =
		ahead->nleaves > 0 ? ahead->leaves[ahead->nleaves - 1] : NULL;
	Buffer		buffer;

	if (ahead->dead_end)
		return false;
	if (!ahead->is_reading)
	{
		BlockNumber page =
			before ? before->next : BTreeNextLeafOfScan(scan, ahead->dir);

		if (page == InvalidBlockNumber)
			return false;
		if (ahead->reading_more != NULL &&
			LeavesAheadIsReading(ahead->reading_more, page, &ahead->reading))
			ahead->is_reading = true;
		else
		{
			ahead->is_reading =
				PageReadStart(ahead->index, MAIN_FORKNUM, page,
							  &ahead->reading, ahead->owner);
			ahead->dead_end = !ahead->is_reading;
			if (ahead->dead_end)
				return false;
			ahead->owed += PageReadWasRead(&ahead->reading);
		}
	}
	if (!wait && !PageReadIsDone(&ahead->reading))
		return false;

	buffer = PageReadFinish(ahead->index, &ahead->reading);
	ahead->is_reading = false;
	ahead->dead_end = !BufferIsValid(buffer) ||
		!BTreeLeafExamine(leaf, ahead->reading.block, buffer, scan, ahead->dir,
						  before ? before->page : ahead->page);
	if (BufferIsValid(buffer))
		ReleaseBuffer(buffer);
	return !ahead->dead_end;
}

/* Might a second scan go through far more pages than the scan has? */
static bool
may_search_in_vain(const EntriesAhead *ahead, IndexScanDesc scan)
{
	return ahead->may_be_left && BTreeMatchesLieApart(scan) &&
		RelationGetNumberOfBlocks(ahead->index) >
			PAGES_IN_VAIN + (ahead->returned - ahead->begun);
}

/*
 * Learn about one more leaf page of a btree.  True if there is one; false if
 * there is none, or its read has only just been started.
 */
static bool
next_leaf(EntriesAhead *ahead, IndexScanDesc scan, bool wait)
{
	BTreeLeaf  *leaf;
	bool		known;

	if (!ahead->is_btree || ahead->nleaves == MAX_LEAVES ||
		ahead->nentries >= ahead->max_entries)
		return false;
	if (ahead->nleaves == ahead->size)
	{
		int			size = Max(8, 2 * ahead->size);
		BTreeLeaf **leaves =
			MemoryContextAllocZero(ahead->mcxt, size * sizeof(BTreeLeaf *));

		if (ahead->size > 0)
		{
			memcpy(leaves, ahead->leaves, ahead->size * sizeof(BTreeLeaf *));
			pfree(ahead->leaves);
		}
		ahead->leaves = leaves;
		ahead->size = size;
	}
	if (ahead->leaves[ahead->nleaves] == NULL)
		ahead->leaves[ahead->nleaves] = BTreeLeafCreate(ahead->mcxt);
	leaf = ahead->leaves[ahead->nleaves];
	if (BTreeNeedsDescents(scan))
	{
		if (ahead->pages < PAGES_BEFORE_DESCENTS)
			return false;
		if (may_search_in_vain(ahead, scan))
			return false;
		if (ahead->descents == NULL)
			ahead->descents = BTreeDescentsCreate(ahead->mcxt);
		known = BTreeDescentsNext(ahead->descents, scan, ahead->dir,
								  ahead->returned, leaf);
	}
	else
		known = read_leaf(ahead, scan, wait, leaf);
	if (known)
	{
		ahead->nleaves++;
		ahead->nentries += leaf->nblocks;
		if (ahead->reading_more != NULL)
		{
			LeavesAheadLookedAt(ahead->reading_more, leaf->page);
			LeavesAheadFill(ahead->reading_more, scan, ahead->dir, ahead->rows);
		}
	}
	return known;
}

bool
EntriesAheadNext(EntriesAhead *ahead, IndexScanDesc scan, bool wait,
				 BlockNumber *block, uint64 *ordinal)
{
	if (ahead->leaf == -1)
	{
		ScanPosition position = ScanPositionOf(scan);
		int			next =
			ahead->entry + (ScanDirectionIsForward(ahead->dir) ? 1 : -1);

		if (next >= position.first && next <= position.last)
		{
			ahead->entry = next;
			*ordinal = ++ahead->ordinal;
			*block =
				ItemPointerGetBlockNumberNoCheck(ScanPositionTid(&position,
																 next));
			return true;
		}
	}

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (ahead->leaf >= 0)
		{
			BTreeLeaf  *leaf = ahead->leaves[ahead->leaf];

			if (ahead->entry + 1 < leaf->nblocks)
			{
				*block = leaf->blocks[++ahead->entry];
				*ordinal = ++ahead->ordinal;

				/* further entries of the same heap page bring no block */
				while (ahead->entry + 1 < leaf->nblocks &&
					   leaf->blocks[ahead->entry + 1] == *block)
				{
					ahead->entry++;
					ahead->ordinal++;
				}
				return true;
			}
		}
		if (ahead->leaf + 1 >= ahead->nleaves && !next_leaf(ahead, scan, wait))
			return false;
		ahead->leaf++;
		ahead->entry = -1;
	}
}

void
EntriesAheadDestroy(EntriesAhead *ahead)
{
	for (int i = 0; i < ahead->size && ahead->leaves[i] != NULL; i++)
		BTreeLeafDestroy(ahead->leaves[i]);
	if (ahead->size > 0)
		pfree(ahead->leaves);
	if (ahead->descents)
		BTreeDescentsDestroy(ahead->descents);
	pfree(ahead);
}
