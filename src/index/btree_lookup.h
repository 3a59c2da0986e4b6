/*-------------------------------------------------------------------------
 *
 * btree_lookup.h
 *		Where a btree scan that has not begun will find its first entries.
 *
 * The scan's keys tell the way from the root to its first leaf page, and which
 * entries of that page match.  The caller reads the pages, one level after the
 * other, so that it need not wait for any of them:
 *
 *		BTreeLookupRoot() names the first page.
 *		BTreeLookupStep() names, from a page above the leaves, the next one.
 *		BTreeLookupMatches() gives the heap blocks, from the leaf page.
 *
 * Nothing that is found here decides what the scan returns, so every doubt (a
 * page split, deleted or damaged) is answered by knowing nothing.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_BTREE_LOOKUP_H
#define PG_LOOKAHEAD_BTREE_LOOKUP_H

#include "access/sdir.h"
#include "access/skey.h"
#include "storage/buf.h"
#include "utils/relcache.h"

typedef struct BTreeLookup BTreeLookup;

/* A page on the way down. */
typedef struct BTreePlace
{
	BlockNumber page;
	int			level;			/* its level; 0: a leaf page */
	bool		is_root;		/* the root page, as far as is remembered */
} BTreePlace;

/*
 * Create a lookup for scans with these keys, as they are before the access
 * method has preprocessed them; their arguments are not looked at.  Return
 * NULL, and the reason in *refusal, if the keys do not lead to a leaf page, or
 * if types or operators are those of an extension, whose functions may do
 * anything.
 */
extern BTreeLookup *BTreeLookupCreate(MemoryContext mcxt, Relation index,
									  ScanKey keys, int nkeys,
									  ScanDirection dir,
									  const char **refusal);

/* Does a lookup need the argument of a key?  Only the server tests others. */
extern bool BTreeLookupUses(const ScanKeyData *key);

/* Find the page where a search begins; false if it is not known. */
extern bool BTreeLookupRoot(const BTreeLookup *lookup, BTreePlace *place);

/*
 * Step from a page above the leaves, pinned in a buffer, to the page below it
 * or to its right.  keys: those of BTreeLookupCreate(), with arguments, none of
 * which is NULL.  Return false if the page is not what was expected.
 */
extern bool BTreeLookupStep(const BTreeLookup *lookup, ScanKey keys,
							Buffer buffer, BTreePlace *place);

/*
 * Write at most "most" heap blocks of a leaf page's matching entries into an
 * array, in scan order and without repetitions in a row.  Return their number;
 * or -1 if the place has changed to the page to the right, or -2 if the page is
 * not what was expected.
 */
extern int	BTreeLookupMatches(const BTreeLookup *lookup, ScanKey keys,
							   Buffer buffer, BTreePlace *place,
							   bool ignore_killed, BlockNumber *blocks,
							   int most);

#endif							/* PG_LOOKAHEAD_BTREE_LOOKUP_H */
