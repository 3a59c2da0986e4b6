/*-------------------------------------------------------------------------
 *
 * rebuild.h
 *		How large a btree would be after REINDEX, by leaf pages of it.
 *
 * See rebuild.c.  Leaf pages are added one by one; each gives the bytes that
 * its entries will need on new pages, and their total over the index divided
 * by RebuildBytesPerLeaf() is the number of new leaf pages.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_REBUILD_H
#define PG_LOOKAHEAD_REBUILD_H

#include "storage/bufpage.h"
#include "utils/relcache.h"

/*
 * If all leaves are known, the predicted number of leaves may be wrong by this
 * part of itself, and by one leaf more.
 */
#define REBUILD_ERROR 0.005

/* The leaf page that is being filled. */
typedef struct RebuildPage
{
	int			items;
	Size		used;			/* bytes of its items and line pointers */
	Size		last_used;		/* bytes of the last item */
	Size		last_posting;	/* bytes of its TIDs beyond the first */
} RebuildPage;

typedef struct Rebuild
{
	bool		deduplicate;
	Size		target_free;	/* what fillfactor leaves free on a leaf */
	RebuildPage page;
	double		pages;			/* pages that were filled */
	double		bytes;			/* bytes in use on these pages */
	Size	   *waiting;		/* TIDs of keys that go on on another leaf */
	Size		waiting_key_size;
	int			nwaiting;
	int			max_waiting;	/* TIDs that "waiting" has room for */
	double		pivots;			/* keys for upper levels that were seen */
	double		pivot_bytes;
} Rebuild;

/* Begin with an index, which is open. */
extern void RebuildInit(Rebuild *rebuild, Relation index);

/*
 * Add a leaf page, which is locked, and not half-dead.
 *		entries		gets the number of TIDs
 *		dead		gets how many of these are marked dead
 *		bytes		gets what the others need after REINDEX
 *		returns		false if the page is corrupt, with nothing changed
 */
extern bool RebuildAddLeaf(Rebuild *rebuild, Page page, double *entries,
						   double *dead, double *bytes);

/* Bytes of entries on a new leaf page, once all leaves have been added. */
extern double RebuildBytesPerLeaf(Rebuild *rebuild);

/* The length of the index in bytes, with that many new leaf pages. */
extern double RebuildSize(const Rebuild *rebuild, double leaves);

#endif							/* PG_LOOKAHEAD_REBUILD_H */
