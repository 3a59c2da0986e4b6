/*-------------------------------------------------------------------------
 *
 * entries_ahead.c
 *		The heap blocks of the entries that an index scan will return next;
 *		see heap_ahead.h.
 *
 * Entries are counted from 0 on each page, in the order of the scan.  So the
 * number of an entry that was given ahead of the scan stays the same when the
 * scan comes to its page.  Invariant: what was given last is no entry that the
 * scan has left behind.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "index/scan_position.h"
#include "miscadmin.h"
#include "scan/heap_ahead.h"

bool
EntriesAheadFollow(EntriesAhead *ahead, IndexScanDesc scan, ScanDirection dir,
				   uint64 returned, bool anew)
{
	ScanPosition at = ScanPositionOf(scan);
	int			current = ScanPositionCurrent(&at, dir);
	int			steps = (int) (returned - ahead->returned);
	bool		first = ScanDirectionIsNoMovement(ahead->dir);
	bool		expected = dir == ahead->dir && !anew;
	uint64		position = ahead->position;
	bool		left;

	/* has the scan left the page on which it stood? */
	if (ahead->ring != NULL)
	{
		expected &= LeafRingFollow(ahead->ring, scan, dir);
		position = LeafRingPosition(ahead->ring);
	}
	else if (at.page != ahead->page)
		position++;
	left = at.page != ahead->page || position != ahead->position;

	if (!left)
		expected &= current == ahead->current + steps;
	else if (ahead->given_position < position ||
			 ahead->given_position == ahead->position)
	{
		/* wrong, if more was given of the page than the scan has returned */
		expected &= ahead->ordinal <= returned;
		ahead->given_position = position;
		ahead->given = current;
	}
	if (!expected)
	{
		ahead->given_position = position;
		ahead->given = current;
		ahead->begun = returned;
	}

	/* never give what has been returned */
	if (ahead->given_position == position)
	{
		ahead->given = Max(ahead->given, current);
		ahead->ordinal = returned + ahead->given - current;
	}
	ahead->page = at.page;
	ahead->position = position;
	ahead->current = current;
	ahead->returned = returned;
	ahead->dir = dir;
	return expected || first;
}

bool
EntriesAheadNext(EntriesAhead *ahead, IndexScanDesc scan, LeafLook *look,
				 BlockNumber *block, uint64 *ordinal)
{
	if (ahead->given_position == ahead->position)
	{
		ScanPosition at = ScanPositionOf(scan);
		ItemPointer tid = ScanPositionEntry(&at, ahead->dir, ahead->given + 1);

		if (tid != NULL)
		{
			ahead->given++;
			*ordinal = ++ahead->ordinal;
			*block = ItemPointerGetBlockNumberNoCheck(tid);
			return true;
		}
		if (ahead->ring == NULL)
			return false;
	}

	look->returned = ahead->returned;
	look->begun = ahead->begun;
	for (;;)
	{
		const BTreeLeaf *leaf;

		CHECK_FOR_INTERRUPTS();
		if (ahead->given_position > ahead->position)
		{
			leaf = LeafRingLook(ahead->ring, scan, ahead->given_position, look);
			if (ahead->given + 1 < leaf->nblocks)
			{
				*block = leaf->blocks[++ahead->given];
				*ordinal = ++ahead->ordinal;

				/* further entries of the same heap page bring no block */
				while (ahead->given + 1 < leaf->nblocks &&
					   leaf->blocks[ahead->given + 1] == *block)
				{
					ahead->given++;
					ahead->ordinal++;
				}
				return true;
			}
		}
		look->known = ahead->ordinal;
		if (LeafRingLook(ahead->ring, scan, ahead->given_position + 1,
						 look) == NULL)
			return false;
		ahead->given_position++;
		ahead->given = -1;
	}
}
