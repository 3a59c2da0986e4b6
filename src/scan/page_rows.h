/*-------------------------------------------------------------------------
 *
 * page_rows.h
 *		Rows of one heap page whose visibility is looked up together.
 *
 * If the entries that follow lie on the same heap page, the visibility of some
 * of them is looked up under one share lock, as a sequential scan does with a
 * whole page.  With an MVCC snapshot the answer cannot change while the page is
 * pinned: the tuple stays where it is, and what the snapshot sees is fixed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_PAGE_ROWS_H
#define PG_LOOKAHEAD_PAGE_ROWS_H

#include "access/htup.h"
#include "access/relscan.h"
#include "access/sdir.h"
#include "compat_scan.h"
#include "executor/tuptable.h"

/* Pages in a row that have one row each, until no others are looked for. */
#define LONE_PAGES 8

/* The most rows that are looked up together. */
#define PAGE_ROWS_MAX 32

/*
 * Whether rows of one page follow each other.  That is looked for after a read,
 * or when an entry lies on the page of one that was looked at some entries
 * before; and no longer when LONE_PAGES pages in a row had one row each.
 */
typedef struct PageNeighbours
{
	bool		are_looked_for;
	int			lone_pages;		/* pages in a row that had one row each */
} PageNeighbours;

typedef struct PageRow
{
	ItemPointerData tid;		/* TID in the index entry */
	OffsetNumber offset;		/* of the visible tuple, if there is one */
	bool		visible;
	bool		all_dead;
	HeapTupleHeader data;
	uint32		length;
} PageRow;

typedef struct PageRows
{
	Buffer		buffer;			/* heap page, pinned by the scan while n > 0 */
	int			n;
	int			next;
	PageRow		rows[PAGE_ROWS_MAX];
} PageRows;

/* Look for neighbours from now on, or go on since some have been found. */
static inline void
PageNeighboursFound(PageNeighbours *neighbours)
{
	neighbours->are_looked_for = true;
	neighbours->lone_pages = 0;
}

/* The scan has come to another page. */
static inline void
PageNeighboursPage(PageNeighbours *neighbours)
{
	if (++neighbours->lone_pages >= LONE_PAGES)
		neighbours->are_looked_for = false;
}

/*
 * Look up the current entry of a scan, whose page it holds, and at most "most"
 * entries in all.  False if there is no other on the page.  Makes *rows in
 * mcxt.
 */
extern bool PageRowsLookUp(PageRows **rows, MemoryContext mcxt,
						   IndexScanDesc scan, ScanDirection direction,
						   int64 most);

/* Has the current entry of the scan been looked up? */
static inline bool
PageRowsHave(PageRows *rows, IndexScanDesc scan)
{
	if (rows == NULL || rows->next == rows->n)
		return false;
	if (likely(LookaheadHeapBuffer(scan) == rows->buffer &&
			   ItemPointerEquals(&rows->rows[rows->next].tid,
								 &scan->xs_heaptid)))
		return true;
	rows->n = rows->next = 0;
	return false;
}

/*
 * Store the row that PageRowsHave() has found into a slot; false if no version
 * of it is visible.
 */
extern bool PageRowsNext(PageRows *rows, IndexScanDesc scan,
						 TupleTableSlot *slot);

#endif							/* PG_LOOKAHEAD_PAGE_ROWS_H */
