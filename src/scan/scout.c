/*-------------------------------------------------------------------------
 *
 * scout.c
 *		Which heap blocks an index scan will ask for next; see scout.h.
 *
 * The list of matches of the current index page is read in place, in the
 * access method's scan descriptor (current_page()).  Beyond it, the leaf pages
 * of a btree are read by the scout itself (btree_leaf.c), or, for keys that
 * only the access method can test, by a second scan (btree_pilot.c); their
 * heap blocks are kept until the scan arrives there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/amapi.h"
#include "access/genam.h"
#include "access/gist_private.h"
#include "access/hash.h"
#include "access/nbtree.h"
#include "access/spgist.h"
#include "access/spgist_private.h"
#include "catalog/pg_am_d.h"
#include "compat.h"
#include "miscadmin.h"
#include "observe/profile.h"
#include "scan/btree_leaf.h"
#include "scan/btree_pilot.h"
#include "scan/scout.h"
#include "utils/rel.h"

/*
 * How many leaf pages beyond the current one a scout may know of: so many, or
 * so many entries on them.
 */
#define SCOUT_MAX_LEAVES 256
#define SCOUT_MAX_ENTRIES 32768

/*
 * A pilot goes on to the next match, however many pages lie before it.  So it
 * is not sent before the scan has come to so many pages itself: most of the
 * scans that are abandoned are so on their first.
 */
#define PAGES_BEFORE_PILOT 2

/* The matches of the index page that the scan stands on. */
typedef struct CurrentPage
{
	BlockNumber page;			/* of the index; Invalid: scan not positioned */
	const char *tids;			/* first TID of the access method's array */
	Size		stride;			/* from one TID to the next */
	int			first;			/* bounds of the array, inclusive */
	int			last;
	int			current;		/* the entry returned last */
} CurrentPage;

struct Scout
{
	MemoryContext mcxt;
	Relation	index;
	Oid			am;
	ScanDirection dir;

	/* where the scan stood after the entry returned last */
	BlockNumber page;
	int			current;
	uint64		turn;
	int			pages;			/* it has come to since it was begun */

	/*
	 * What was told last: entry "told" of the current page, if leaf is -1,
	 * else of leaves[leaf].
	 */
	int			leaf;
	int			told;
	uint64		told_turn;

	/* the leaf pages that come after the current one, in scan order */
	int			nleaves;
	int			nentries;		/* on all of them */
	BTreeLeaf  *leaves[SCOUT_MAX_LEAVES];
	BTreeLeafRead *reading;		/* the one after those, being read */
	bool		dead_end;		/* or nothing can be learnt of it */
	BTreePilot *pilot;			/* or what finds it instead */
	int			reads_owed;		/* of pages read ahead: see uncount.h */
};

bool
ScoutSupportsIndex(Relation index)
{
	amgettuple_function amgettuple = ProfileStockRoutine(index)->amgettuple;

	/* whose state we look at is what counts, not under which name */
	switch (index->rd_rel->relam)
	{
		case BTREE_AM_OID:
			return amgettuple == btgettuple;
		case HASH_AM_OID:
			return amgettuple == hashgettuple;
		case GIST_AM_OID:
			return amgettuple == gistgettuple;
		case SPGIST_AM_OID:
			return amgettuple == spggettuple;
		default:
			return false;
	}
}

Scout *
ScoutCreate(MemoryContext mcxt, Relation index)
{
	Scout	   *scout = MemoryContextAllocZero(mcxt, sizeof(Scout));

	scout->mcxt = mcxt;
	scout->index = index;
	scout->am = index->rd_rel->relam;
	scout->page = InvalidBlockNumber;
	scout->leaf = -1;
	return scout;
}

uint64
ScoutTurn(const Scout *scout)
{
	return scout->turn;
}

int *
ScoutReadsOwed(Scout *scout)
{
	return &scout->reads_owed;
}

uint64
ScoutToldTurn(const Scout *scout)
{
	return scout->told_turn;
}

/* Look at the list of matches in the access method's scan descriptor. */
static inline CurrentPage
current_page(Oid am, IndexScanDesc scan)
{
	CurrentPage cp;

	switch (am)
	{
		case BTREE_AM_OID:
			{
				BTScanPos	pos = &((BTScanOpaque) scan->opaque)->currPos;

				cp.page = pos->currPage;
				cp.tids = (const char *) &pos->items[0].heapTid;
				cp.stride = sizeof(BTScanPosItem);
				cp.first = pos->firstItem;
				cp.last = pos->lastItem;
				cp.current = pos->itemIndex;
				break;
			}
		case HASH_AM_OID:
			{
				HashScanPosData *pos =
					&((HashScanOpaque) scan->opaque)->currPos;

				cp.page = pos->currPage;
				cp.tids = (const char *) &pos->items[0].heapTid;
				cp.stride = sizeof(HashScanPosItem);
				cp.first = pos->firstItem;
				cp.last = pos->lastItem;
				cp.current = pos->itemIndex;
				break;
			}
		case GIST_AM_OID:
			{
				GISTScanOpaque so = (GISTScanOpaque) scan->opaque;

				cp.page = so->curBlkno;
				cp.tids = (const char *) &so->pageData[0].heapPtr;
				cp.stride = sizeof(GISTSearchHeapItem);
				cp.first = 0;
				cp.last = (int) so->nPageData - 1;
				cp.current = (int) so->curPageData - 1;
				break;
			}
		default:
			{
				SpGistScanOpaque so = (SpGistScanOpaque) scan->opaque;

				/* SP-GiST does not say which page; the count will have to do */
				Assert(am == SPGIST_AM_OID);
				cp.page = (BlockNumber) so->nPtrs;
				cp.tids = (const char *) &so->heapPtrs[0];
				cp.stride = sizeof(ItemPointerData);
				cp.first = 0;
				cp.last = so->nPtrs - 1;
				cp.current = so->iPtr - 1;
				break;
			}
	}
	return cp;
}

static inline ItemPointer
page_tid(const CurrentPage *cp, int i)
{
	return (ItemPointer) (cp->tids + i * cp->stride);
}

/* The scan has come to the first of our leaves, which is no longer ahead. */
static void
arrive_at_leaf(Scout *scout)
{
	BTreeLeaf  *leaf = scout->leaves[0];

	scout->nleaves--;
	scout->nentries -= leaf->nblocks;
	memmove(&scout->leaves[0], &scout->leaves[1],
			scout->nleaves * sizeof(BTreeLeaf *));
	scout->leaves[scout->nleaves] = leaf;	/* to be used again */
	if (scout->leaf >= 0)
		scout->leaf--;
}

/* Start telling from the entry after the current one. */
static void
forget(Scout *scout)
{
	scout->nleaves = 0;
	scout->nentries = 0;
	if (scout->reading)
	{
		BTreeLeafReadEnd(scout->reading);
		scout->reading = NULL;
	}
	scout->dead_end = false;
	if (scout->pilot)
		BTreePilotReset(scout->pilot);
	scout->leaf = -1;
	scout->told = scout->current;
	scout->told_turn = scout->turn;
}

bool
ScoutFollow(Scout *scout, IndexScanDesc scan, ScanDirection dir, bool anew)
{
	CurrentPage cp = current_page(scout->am, scan);
	int			step = ScanDirectionIsForward(dir) ? 1 : -1;
	bool		expected = true;

	scout->turn++;
	if (anew)
		scout->pages = 0;
	if (likely(cp.page == scout->page && cp.current == scout->current + step &&
			   dir == scout->dir))
	{
		/* the next entry of the same page */
		scout->current = cp.current;
	}
	else
	{
		/* pages that hold no match are passed over by the scan, too */
		while (scout->nleaves > 0 && scout->leaves[0]->nblocks == 0 &&
			   scout->leaves[0]->page != cp.page)
			arrive_at_leaf(scout);

		/* the first entry of a page: one of those we know of? */
		if (scout->nleaves > 0 && scout->dir == dir &&
			scout->leaves[0]->page == cp.page &&
			cp.current == (step > 0 ? cp.first : cp.last))
		{
			if (scout->leaf == 0)
				scout->told = cp.current + step * scout->told;
			else if (scout->leaf == -1)
				scout->told = cp.current;	/* the scan has overtaken us */
			arrive_at_leaf(scout);
			scout->pages++;
			if (scout->leaf == -1)
				scout->told_turn = scout->turn +
					Max(0, (scout->told - cp.current) * step);
		}
		else
		{
			expected = (scout->leaf == -1 && scout->told_turn < scout->turn &&
						scout->dir == dir);
			scout->pages = expected ? scout->pages + 1 : 1;
			scout->current = cp.current;
			forget(scout);
		}
		scout->page = cp.page;
		scout->current = cp.current;
		scout->dir = dir;
	}

	/* never tell of what has been returned */
	if (scout->leaf == -1 && (scout->told - scout->current) * step < 0)
	{
		scout->told = scout->current;
		scout->told_turn = scout->turn;
	}
	return expected;
}

/* Learn about the leaf page that follows, by reading it ahead. */
static bool
read_leaf(Scout *scout, IndexScanDesc scan, bool wait, BTreeLeaf *leaf)
{
	BTreeLeaf  *before =
		scout->nleaves > 0 ? scout->leaves[scout->nleaves - 1] : NULL;
	bool		known;

	if (scout->dead_end)
		return false;
	if (scout->reading == NULL)
	{
		BlockNumber page =
			before ? before->next : BTreeNextLeafOfScan(scan, scout->dir);

		if (page == InvalidBlockNumber)
			return false;
		scout->reading =
			PROFILED(PROFILE_LEAF_START,
					 BTreeLeafReadStart(scout->mcxt, scout->index, page,
										&scout->reads_owed));
		if (scout->reading == NULL)
		{
			scout->dead_end = true;
			return false;
		}
	}
	if (!wait && !BTreeLeafReadIsDone(scout->reading))
		return false;

	known = PROFILED(PROFILE_LEAF_EXAMINE,
					 BTreeLeafExamine(scout->reading, leaf, scan, scout->dir,
									  before ? before->page : scout->page));
	if (!known)
		scout->dead_end = true;
	BTreeLeafReadEnd(scout->reading);
	scout->reading = NULL;
	return known;
}

/*
 * Learn about one more leaf page of a btree.  True if there is one; false if
 * there is none, or its read has only just been started.
 */
static bool
next_leaf(Scout *scout, IndexScanDesc scan, bool wait)
{
	BTreeLeaf  *leaf;
	bool		known;

	if (scout->am != BTREE_AM_OID || scout->nleaves == SCOUT_MAX_LEAVES ||
		scout->nentries >= SCOUT_MAX_ENTRIES)
		return false;

	if (scout->leaves[scout->nleaves] == NULL)
		scout->leaves[scout->nleaves] = BTreeLeafCreate(scout->mcxt);
	leaf = scout->leaves[scout->nleaves];
	if (BTreeNeedsPilot(scan))
	{
		if (scout->pages < PAGES_BEFORE_PILOT)
			return false;
		if (scout->pilot == NULL)
			scout->pilot = BTreePilotCreate(scout->mcxt, &scout->reads_owed);
		known = PROFILED(PROFILE_PILOT_NEXT,
						 BTreePilotNext(scout->pilot, scan, scout->dir,
										scout->turn, leaf));
	}
	else
		known = read_leaf(scout, scan, wait, leaf);
	if (known)
	{
		scout->nleaves++;
		scout->nentries += leaf->nblocks;
	}
	return known;
}

bool
ScoutNext(Scout *scout, IndexScanDesc scan, bool wait, BlockNumber *block,
		  uint64 *turn)
{
	int			step = ScanDirectionIsForward(scout->dir) ? 1 : -1;

	if (scout->leaf == -1)
	{
		CurrentPage cp = current_page(scout->am, scan);
		int			next = scout->told + step;

		if (next >= cp.first && next <= cp.last)
		{
			scout->told = next;
			*turn = ++scout->told_turn;
			*block = ItemPointerGetBlockNumberNoCheck(page_tid(&cp, next));
			return true;
		}
	}

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (scout->leaf >= 0)
		{
			BTreeLeaf  *leaf = scout->leaves[scout->leaf];

			if (scout->told + 1 < leaf->nblocks)
			{
				*block = leaf->blocks[++scout->told];
				*turn = ++scout->told_turn;
				return true;
			}
		}
		if (scout->leaf + 1 >= scout->nleaves && !next_leaf(scout, scan, wait))
			return false;
		scout->leaf++;
		scout->told = -1;
	}
}

int
ScoutNeighbours(IndexScanDesc scan, ScanDirection dir, ItemPointerData *tids,
				int max)
{
	CurrentPage cp = current_page(scan->indexRelation->rd_rel->relam, scan);
	int			step = ScanDirectionIsForward(dir) ? 1 : -1;
	BlockNumber block = ItemPointerGetBlockNumberNoCheck(&scan->xs_heaptid);
	int			n = 0;

	for (int i = cp.current + step; n < max && i >= cp.first && i <= cp.last;
		 i += step)
	{
		ItemPointer tid = page_tid(&cp, i);

		if (ItemPointerGetBlockNumberNoCheck(tid) != block)
			break;
		tids[n++] = *tid;
	}
	return n;
}

void
ScoutPause(Scout *scout)
{
	if (scout->reading)
	{
		BTreeLeafReadEnd(scout->reading);
		scout->reading = NULL;
	}
	scout->leaf = -1;
	scout->told = scout->current;
	scout->told_turn = scout->turn;
}

void
ScoutReset(Scout *scout)
{
	forget(scout);
	scout->reads_owed = 0;		/* the scan does not come there */
	scout->page = InvalidBlockNumber;
}

void
ScoutForget(Scout *scout)
{
	scout->reading = NULL;		/* its memory goes with the query's */
	ScoutReset(scout);
}

void
ScoutDestroy(Scout *scout)
{
	ScoutReset(scout);
	for (int i = 0; i < SCOUT_MAX_LEAVES; i++)
		if (scout->leaves[i])
			BTreeLeafDestroy(scout->leaves[i]);
	if (scout->pilot)
		BTreePilotDestroy(scout->pilot);
	pfree(scout);
}
