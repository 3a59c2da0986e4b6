/*-------------------------------------------------------------------------
 *
 * estimate.h
 *		Describing a relation by a sample of its pages.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_ESTIMATE_H
#define PG_LOOKAHEAD_ESTIMATE_H

#include "common/pg_prng.h"
#include "inspect/interval.h"
#include "nodes/pg_list.h"
#include "storage/block.h"
#include "storage/buf.h"
#include "storage/bufpage.h"
#include "utils/relcache.h"

/* The number by which each method's values have the free bytes of a page. */
#define VALUE_FREE 0

/* One figure of the result; NaN is what is not known. */
typedef struct Figure
{
	const char *name;
	const char *unit;
	Bounded	interval;
	bool		exact;
} Figure;

/* What the caller wishes. */
typedef struct EstimateOptions
{
	BlockNumber sample_pages;	/* a relation of no more pages is read whole */
	double		precision;		/* half the width of the interval of the free
								 * bytes, as a part of the relation; 0: not
								 * asked for */
	double		confidence;
	pg_prng_state random;
} EstimateOptions;

struct PageMethod;

/* Blocks named in a warning. */
#define CORRUPT_NAMED 10

/* An estimate of one relation. */
typedef struct Estimate
{
	Relation	rel;
	const struct PageMethod *method;
	EstimateOptions *options;
	void	   *state;			/* private state of the method */
	const char *prefix;			/* prefix of the names of figures */
	BlockNumber nblocks;		/* length of the relation */
	Moments		moments;		/* of pages method->first .. nblocks - 1 */
	BlockNumber corrupt;		/* number of corrupt pages in the sample */
	BlockNumber corrupt_blocks[CORRUPT_NAMED];
	BlockNumber next;			/* for sample.c: the next item to read */
	bool		looking;		/* for sample.c: a page is being looked at */
	List	   *figures;		/* Figure structs, in order */
} Estimate;

typedef struct PageMethod
{
	BlockNumber first;			/* blocks before it are not sampled */
	int			nvalues;		/* of a page; one of them is VALUE_FREE */
	double		most_free;		/* the greatest value of VALUE_FREE */

	/* Prepare the state; may read the metapage.  May be NULL. */
	void		(*begin) (Estimate *estimate);

	/*
	 * Look at a page that is share-locked, and fill in its values, which are
	 * zero.  False if the page is corrupt; what it has filled in is ignored.
	 */
	bool		(*look) (Estimate *estimate, BlockNumber block, Buffer buffer,
						 double *values);

	/* Add the figures; may finish with the state. */
	void		(*report) (Estimate *estimate);
} PageMethod;

/* Count a page that holds nothing as one of a kind, all of which is free. */
static inline bool
EstimateFreePage(double *values, int kind)
{
	values[kind]++;
	values[VALUE_FREE] += BLCKSZ;
	return true;
}

extern const PageMethod btree_method;
extern const PageMethod hash_method;
extern const PageMethod gist_method;
extern const PageMethod gin_method;
extern const PageMethod bloom_method;
extern const PageMethod heap_method;

/*
 * Read a sample of an index, which is open, and add its figures.  Errors: those
 * of reading; 42809 if the relation is no index, 0A000 if nothing is known of
 * its access method, or it is another session's temporary one, 55000 if it is
 * not valid.
 *		function	for lookahead.progress, which the caller ends
 */
extern Estimate *EstimateIndex(Relation index, const char *function,
							   EstimateOptions *options);

/* Add a figure.  Methods call this; name and unit are constants. */
extern void EstimateAdd(Estimate *estimate, const char *name,
						const char *unit, Bounded interval, bool exact);

/* Add a figure that is known exactly, whatever the sample. */
extern void EstimateAddKnown(Estimate *estimate, const char *name,
							 const char *unit, double value);

/* Add the number of pages that have a value which is 0 or 1. */
extern void EstimateAddPages(Estimate *estimate, const char *name, int value);

/* Add a total of a value, of which a page has "most" or less. */
extern void EstimateAddTotal(Estimate *estimate, const char *name,
							 const char *unit, int value, double most);

/* Add a ratio, in percent with two decimals. */
extern void EstimateAddPercent(Estimate *estimate, const char *name,
							   Bounded ratio);

/* Add the density of pages, of whose capacity a value is free, in percent. */
extern void EstimateAddDensity(Estimate *estimate, const char *name, int free,
							   int capacity);

/*
 * Add the size after REINDEX, in pages, and what that gives back.  The bounds
 * are taken for unknown if pages are corrupt, whose entries nobody knows.
 */
extern void EstimateAddRebuilt(Estimate *estimate, Bounded pages);

/* The figure of a name, or NULL. */
extern Figure *EstimateFigure(Estimate *estimate, const char *name);

/* Choose and read the pages, and add them to the moments (sample.c). */
extern void SampleRead(Estimate *estimate);

/*
 * rebuild.c: how large a btree would be after REINDEX, by leaf pages of it.
 *
 * Leaf pages are added one by one; each gives the bytes that
 * its entries will need on new pages, and their total over the index divided
 * by RebuildBytesPerLeaf() is the number of new leaf pages.
 */

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

#endif							/* PG_LOOKAHEAD_ESTIMATE_H */
