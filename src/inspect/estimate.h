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

#endif							/* PG_LOOKAHEAD_ESTIMATE_H */
