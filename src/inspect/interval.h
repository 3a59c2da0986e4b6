/*-------------------------------------------------------------------------
 *
 * interval.h
 *		What a random sample of pages tells of all pages, and how surely.
 *
 * Arithmetic only: no server is needed to use it, and nothing is read here.
 * Each page that was looked at adds a row of values (bytes free, 1 if it is a
 * leaf, ...) to the moments; from these and the size of the population come
 * estimates with their intervals.  See interval.c for the methods.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_INTERVAL_H
#define PG_LOOKAHEAD_INTERVAL_H

/* The most values that a page can have. */
#define MAX_VALUES 44

/* An estimate, and between which bounds the truth is. */
typedef struct Bounded
{
	double		value;
	double		low;
	double		high;
} Bounded;

/* Sums over the pages of a sample, which is drawn without replacement. */
typedef struct Moments
{
	double		population;		/* pages that the sample was drawn from */
	double		confidence;		/* level of intervals, such as 0.95 */
	int			nvalues;		/* number of values of a page */
	double		n;				/* pages in the sample */
	double		sum[MAX_VALUES];
	double		cross[MAX_VALUES][MAX_VALUES];	/* sums of products; i <= j */
	double		cubes[MAX_VALUES][MAX_VALUES];	/* of squares of the first with
												 * the second */
	double		largest[MAX_VALUES];
	double		nonzero[MAX_VALUES];	/* pages whose value is not 0 */
} Moments;

/* Add a page. */
extern void MomentsAdd(Moments *moments, const double *values);

/* Is the sample the whole population? */
extern bool MomentsAreExact(const Moments *moments);

/* The normal distribution's quantile for a two-sided confidence. */
extern double NormalQuantile(double confidence);

/* Student's t quantile for a two-sided confidence, df degrees of freedom. */
extern double StudentQuantile(double confidence, double df);

/*
 * How many pages of a kind the population has, of which the sample of n out of
 * population pages has x.
 */
extern Bounded IntervalOfCount(double population, double n, double x,
								double confidence);

/* The total of a value over the population; a page has 0 to most of it. */
extern Bounded IntervalOfTotal(const Moments *moments, int value,
								double most);

/*
 * Estimate the part of the pages with value "base" (which is 0 or 1) that also
 * has value "part" (0 or 1).  NaN if there are no such pages.
 */
extern Bounded IntervalOfPart(const Moments *moments, int part, int base);

/*
 * The total of a value, divided by the total of another one, where for no page
 * the quotient is less than 0 or more than 1, nor the divisor more than "most".
 * NaN if that is 0.
 */
extern Bounded IntervalOfRatio(const Moments *moments, int value, int base,
								double most);

#endif							/* PG_LOOKAHEAD_INTERVAL_H */
