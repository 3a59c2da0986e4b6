/*-------------------------------------------------------------------------
 *
 * leaf_parents.c
 *		Lists of the leaf pages that a btree scan will come to; see
 *		leaf_ring.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "read/page_read.h"
#include "read/uncount.h"
#include "scan/leaf_ring.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/*
 * The most pages that one call looks at for a list: a damaged page may follow
 * itself.
 */
#define PARENTS_PER_LIST 4

LeafParents *
LeafParentsBegin(MemoryContext mcxt, IndexScanDesc scan, ScanDirection dir,
				 bool from_start, const void *owner)
{
	MemoryContext ours = AllocSetContextCreate(mcxt, "look-ahead parent pages",
											   ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(ours);
	LeafParents *parents = palloc0_object(LeafParents);
	bool		known;

	parents->mcxt = ours;
	parents->index = scan->indexRelation;
	parents->owner = owner;
	parents->nblocks = RelationGetNumberOfBlocks(scan->indexRelation);
	known = BTreeChildrenBegin(&parents->leaves, scan, dir, 1, from_start);
	if (known && parents->leaves.narrays > 0)
		parents->has_above =
			BTreeChildrenBegin(&parents->above, scan, dir, 2, from_start);
	MemoryContextSwitchTo(old);
	if (known)
		return parents;
	LeafParentsEnd(parents);
	return NULL;
}

void
LeafParentsEnd(LeafParents *parents)
{
	MemoryContextDelete(parents->mcxt);
}

/* Is there such a page?  The index may have grown. */
static bool
leaf_parents_exists(LeafParents *parents, BlockNumber block)
{
	if (block >= parents->nblocks)
		parents->nblocks = RelationGetNumberOfBlocks(parents->index);
	return block < parents->nblocks;
}

/* Look at a page in a pinned buffer, and release the pin. */
static void
leaf_parents_examine(BTreeChildren *children, Buffer buffer)
{
	BTreeChildrenExamine(children, buffer);
	if (BufferIsValid(buffer))
		ReleaseBuffer(buffer);
}

/*
 * Look at the page that comes next, whose read is waited for, or search for
 * it.  A scan that is no series of searches does not visit it, and stock counts
 * nothing.
 */
static void
leaf_parents_look(LeafParents *parents, BTreeChildren *children)
{
	CountsBefore before = CountsNow(parents->index);
	Buffer		buffer = InvalidBuffer;
	int			reads;

	if (children->next == InvalidBlockNumber)
	{
		parents->owed += BTreeChildrenSearch(children);
		return;
	}
	if (leaf_parents_exists(parents, children->next))
		buffer = PageReadIfSound(parents->index, children->next);
	reads = UncountSince(parents->index, &before);
	parents->owed += children->searches ? reads : 0;
	leaf_parents_examine(children, buffer);
}

/* Read pages of level 1 ahead, as listed by the level above them. */
static void
leaf_parents_fill(LeafParents *parents)
{
	BTreeChildren *above = &parents->above;
	int			looks = 0;

	while (parents->has_above && parents->nahead < MAX_PARENTS)
	{
		PageRead   *page = &parents->ahead[parents->nahead];

		CHECK_FOR_INTERRUPTS();
		if (parents->nlisted < above->n)
		{
			BlockNumber block = above->blocks[parents->nlisted++];

			parents->has_above =
				PageReadStart(parents->index, block, page, parents->owner);
			parents->nahead += parents->has_above;
			continue;
		}
		if (looks++ == PARENTS_PER_LIST)
			return;
		parents->has_above = !above->ended;
		parents->nlisted = 0;
		if (parents->has_above)
			leaf_parents_look(parents, above);
	}
}

/* Start to read the page of the next list, unless it has been read ahead. */
static void
leaf_parents_start(LeafParents *parents)
{
	BlockNumber block = parents->leaves.next;

	for (int i = 0; i < parents->nahead; i++)
		if (parents->ahead[i].block == block)
		{
			parents->reading = parents->ahead[i];
			parents->is_reading = true;
			parents->nahead -= i + 1;
			memmove(&parents->ahead[0], &parents->ahead[i + 1],
					parents->nahead * sizeof(PageRead));
			return;
		}
	parents->is_reading = PageReadStart(parents->index, block,
										&parents->reading, parents->owner);
}

/* Remove the pages from the list that the index does not have. */
static void
leaf_parents_check(LeafParents *parents)
{
	BTreeChildren *leaves = &parents->leaves;
	int			n = 0;

	for (int i = 0; i < leaves->n; i++)
		if (leaf_parents_exists(parents, leaves->blocks[i]))
			leaves->blocks[n++] = leaves->blocks[i];
	leaves->n = n;
}

bool
LeafParentsNext(LeafParents *parents, bool wait)
{
	BTreeChildren *leaves = &parents->leaves;

	for (int looks = 0; looks < PARENTS_PER_LIST && !leaves->ended; looks++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!parents->is_reading)
			leaf_parents_look(parents, leaves);
		else if (wait || PageReadIsDone(&parents->reading))
		{
			parents->is_reading = false;
			parents->owed += leaves->searches &&
				PageReadWasRead(&parents->reading);
			leaf_parents_examine(leaves, PageReadFinish(parents->index,
														&parents->reading));
		}
		else
			return false;
		leaf_parents_fill(parents);
		if (leaves->next != InvalidBlockNumber && !leaves->ended)
			leaf_parents_start(parents);
		leaf_parents_check(parents);
		if (leaves->n > 0)
			return true;
	}
	leaves->n = 0;
	return false;
}
