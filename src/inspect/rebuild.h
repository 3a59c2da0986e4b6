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

#include "inspect/interval.h"
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
	double		pages;			/* pages that were filled before it */
	double		bytes;			/* bytes in use on these */
} RebuildPage;

typedef struct Rebuild
{
	bool		deduplicate;
	Size		target_free;	/* what fillfactor leaves free on a leaf */
	RebuildPage all;			/* filled with all that was seen */
	RebuildPage whole;			/* filled with keys that were on one leaf */
	Size	   *waiting;		/* TIDs of keys that go on on another leaf */
	Size		waiting_key_size;
	int			nwaiting;
	int			max_waiting;	/* TIDs that "waiting" has room for */
	double		parts;			/* bytes of entries, each old leaf by itself */
	double		joined;			/* of these, that go if all keys that were on
								 * two leaves need one tuple less */
	double		pivots;			/* keys for upper levels that were seen */
	double		pivot_bytes;
	double		pivot_squares;
	bool		cut;			/* may high keys lack columns of the keys? */
	double		cut_bytes;		/* that pivots may become longer, at most */
} Rebuild;

/* Begin with an index, which is open. */
extern void RebuildInit(Rebuild *rebuild, Relation index);

/*
 * Add a leaf page, which is locked, and not half-dead.
 *		entries		gets the number of TIDs
 *		dead		gets how many of these are marked dead
 *		bytes		gets what the others need after REINDEX, at most
 *		returns		false if the page is corrupt, with nothing changed
 */
extern bool RebuildAddLeaf(Rebuild *rebuild, Page page, double *entries,
						   double *dead, double *bytes);

/* The part of the bytes that may not be needed, since keys become whole. */
extern double RebuildJoined(const Rebuild *rebuild);

/* Bytes of entries on a new leaf page, once all leaves have been added. */
extern Bounded RebuildBytesPerLeaf(Rebuild *rebuild);

/*
 * The length of the index in pages, with a number of new leaf pages.
 *		most	with upper levels as large as they may become
 */
extern double RebuildPages(const Rebuild *rebuild, double leaves, bool most);

#endif							/* PG_LOOKAHEAD_REBUILD_H */
