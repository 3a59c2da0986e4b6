/*-------------------------------------------------------------------------
 *
 * heap_row.h
 *		Rows on pages of a table that are looked at before the server comes to
 *		them.
 *
 * Such a row may be damaged, or visible to nobody.  So its tuple is looked for,
 * and gone through value by value, in such a way that no byte outside of it is
 * read.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_HEAP_ROW_H
#define PG_LOOKAHEAD_HEAP_ROW_H

#include "access/htup.h"
#include "executor/tuptable.h"
#include "nodes/bitmapset.h"
#include "storage/bufpage.h"
#include "utils/relcache.h"
#include "varatt.h"

/* How a row of a page is found. */
typedef enum HeapRowHow
{
	ROW_IS_VISIBLE,				/* its line pointer is that of a visible row */
	ROW_BY_ITSELF,				/* it is visible as far as its hint bits tell */
	ROW_OF_CHAIN,				/* it, or a later version of it on the page, is
								 * visible so: for an entry of an index */
	ROW_IS_LIVE					/* it is the first of such a chain, and live */
} HeapRowHow;

/* Was a tuple inserted, and not deleted, as its hint bits tell? */
extern bool HeapRowIsLive(const HeapTupleHeaderData *tuple);

/*
 * Has a later version taken the place of a tuple, on another page, or has its
 * row been deleted?  Which transaction has committed is not asked.
 */
extern bool HeapRowIsOutdated(const HeapTupleHeaderData *tuple);

/*
 * Find a row on a page that is locked, or a copy; false if there is none.  Sets
 * the tuple, its length and its offset; not its block, nor its table.
 */
extern bool HeapRowAt(Page page, OffsetNumber offset, HeapRowHow how,
					  HeapTuple row);

/* Create a slot for copies of rows in the current memory context. */
extern TupleTableSlot *CachedRowSlot(Relation table);

/*
 * Copy a row of a table into such a slot, if its page is in shared buffers;
 * false if it is not.  The slot stays empty if there is no such row.  Nothing
 * is counted.
 */
extern bool CachedRowFetch(TupleTableSlot *slot, Relation table,
						   const ItemPointerData *tid, HeapRowHow how);

/*
 * Can a scan come to the row of an index entry with no effect and no error?
 * Its page must be in shared buffers, with nothing on it to be pruned, and no
 * transaction must be looked up to see the row.  read: see HeapRowIsSound().
 */
extern bool CachedRowIsSound(Relation table, const ItemPointerData *tid,
							 const Bitmapset *read);

/* A walk through the values of a tuple. */
typedef struct HeapRowWalk
{
	TupleDesc	desc;
	HeapTupleHeader tuple;
	Size		size;			/* of its data */
	Size		offset;			/* of the next value */
	int			natts;
	int			next;			/* attribute, counted from 0 */
	bool		is_sound;		/* no doubt has ended the walk */
} HeapRowWalk;

extern void HeapRowBegin(HeapRowWalk *walk, TupleDesc desc,
						 HeapTupleHeader tuple, Size length);

/* The next value that is not NULL, of attribute walk->next - 1; or NULL. */
extern const char *HeapRowNextValue(HeapRowWalk *walk);

/*
 * Is a value of variable length compressed, or in a TOAST table?  To read it
 * may fail, and takes reads in the second case.
 */
static inline bool
HeapValueIsToasted(const void *value)
{
	return VARATT_IS_EXTERNAL(value) || VARATT_IS_COMPRESSED(value);
}

/*
 * Do all values of a tuple lie within it, and is none of those toasted that are
 * to be read?  These are numbers of columns as pull_varattnos() has them.
 */
extern bool HeapRowIsSound(TupleDesc desc, HeapTupleHeader tuple, Size length,
						   const Bitmapset *read);

#endif							/* PG_LOOKAHEAD_HEAP_ROW_H */
