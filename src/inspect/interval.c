/*-------------------------------------------------------------------------
 *
 * interval.c
 *		What a random sample of pages tells of all pages, and how surely; see
 *		interval.h.
 *
 * The sample is a simple random one, drawn without replacement.  Where n of N
 * pages were looked at, n/N = f, all variances are multiplied by 1 - f, the
 * finite population correction, so that nothing remains when all were.
 *
 * - How many pages are of a kind: the interval of Wilson (JASA 22, 1927) with n
 *	 (N - 1) / (N - n) in place of n (H. Burstein, JASA 70, 1975).  Where few
 *	 such pages were seen, or were not, it misses far more often than it should
 *	 (L. D. Brown, T. T. Cai, A. DasGupta, Statistical Science 16, 2001), 48
 *	 times as often with a confidence of 0.9999.  So its lower bound is at most
 *	 the least number of pages of which a sample would show as many as this one,
 *	 or more, with a probability of more than 1 - confidence; and its upper
 *	 bound is at least the greatest number of which a sample would show as many,
 *	 or fewer, with such a probability.
 * - Totals: Student's interval of the mean, times N, made longer on the side of
 *	 the tail by the third moment (N. J. Johnson, JASA 73, 1978; without
 *	 replacement: G. J. Babu, K. Singh, J. Multivariate Analysis 17, 1985).
 *	 Else few pages that have much of a value would be too few or too many in
 *	 far more than 5 % of samples.
 * - Ratios of totals, such as the density of leaves: the ratio estimator, with
 *	 the variance of the residuals (W. G. Cochran, "Sampling Techniques", third
 *	 edition, 1977, chapter 6), and Student's t for as many pages as count.
 *
 * A sample variance knows only what was seen.  The leaves of an index that was
 * just built are all alike, but for the last one, and a sample without that one
 * would claim to be certain.  So totals and ratios are never taken to be surer
 * than this: as many pages as would all be missed with a probability of more
 * than 1 - confidence may each have the least or the greatest value that a page
 * can have (the "rule of three": J. A. Hanley, A. Lippman-Hand, JAMA 249,
 * 1983).
 *
 * What was seen is certain: a total is not less than the sample's own, nor more
 * than if all other pages had the greatest value.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "inspect/interval.h"

void
MomentsAdd(Moments *moments, const double *values)
{
	moments->n++;
	for (int i = 0; i < moments->nvalues; i++)
	{
		if (values[i] == 0)
			continue;
		moments->nonzero[i]++;
		moments->sum[i] += values[i];
		moments->largest[i] = Max(moments->largest[i], values[i]);
		for (int j = i; j < moments->nvalues; j++)
			moments->cross[i][j] += values[i] * values[j];
		for (int j = 0; j < moments->nvalues; j++)
			moments->cubes[i][j] += values[i] * values[i] * values[j];
	}
}

bool
MomentsAreExact(const Moments *moments)
{
	return moments->n >= moments->population;
}

/* The sum over the sample of the product of two values. */
static double
interval_cross(const Moments *moments, int i, int j)
{
	return moments->cross[Min(i, j)][Max(i, j)];
}

/*
 * Solve by Newton's method from 0.  The function is convex there, so that no
 * step is too long.
 */
double
NormalQuantile(double confidence)
{
	double		z = 0;

	for (int i = 0; i < 100; i++)
	{
		double		step = (erfc(z / M_SQRT2) - (1 - confidence)) /
			(sqrt(2 / M_PI) * exp(-z * z / 2));

		z += step;
		if (step < 1e-12)
			break;
	}
	return z;
}

/*
 * Exact for one and two degrees of freedom; otherwise the expansion of
 * M. Abramowitz, I. A. Stegun, "Handbook of Mathematical Functions", 26.7.5,
 * which at 95 % is too small by 0.1 % with three, and by less with more.
 */
double
StudentQuantile(double confidence, double df)
{
	double		z = NormalQuantile(confidence);
	double		z3 = z * z * z;
	double		z5 = z3 * z * z;
	double		z7 = z5 * z * z;
	double		z9 = z7 * z * z;

	if (df <= 1)
		return tan(M_PI / 2 * confidence);
	if (df <= 2)
		return confidence * sqrt(2 / (1 - confidence * confidence));
	return z + (z3 + z) / 4 / df +
		(5 * z5 + 16 * z3 + 3 * z) / 96 / (df * df) +
		(3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / 384 / (df * df * df) +
		(79 * z9 + 776 * z7 + 1482 * z5 - 1920 * z3 - 945 * z) / 92160 /
		(df * df * df * df);
}

/* The logarithm of the number of ways to choose k of n. */
static double
interval_log_choose(double n, double k)
{
	return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1);
}

/*
 * The probability that of "of" pages no more than "seen" are in a sample of n
 * out of population pages: the hypergeometric distribution.
 */
static double
interval_probability_of_few(double population, double n, double of,
							double seen)
{
	double		least = Max(0, of - (population - n));
	double		term = exp(interval_log_choose(of, least) +
						   interval_log_choose(population - of, n - least) -
						   interval_log_choose(population, n));
	double		sum = 0;

	for (double k = least; k <= Min(seen, Min(of, n)); k++)
	{
		sum += term;
		term *= (of - k) / (k + 1) * (n - k) / (population - of - n + k + 1);
	}
	return sum;
}

/* More pages seen than this, and Wilson's interval is wide enough. */
#define FEW_PAGES 100

/*
 * The greatest number of pages of a kind of which a sample would show no more
 * than "seen" with a probability of more than the given one.
 */
static double
interval_most_pages(double population, double n, double seen,
					double probability)
{
	double		low = seen;
	double		high = floor(population - n) + seen + 1;

	while (high - low > 1)
	{
		double		middle = floor((low + high) / 2);

		if (interval_probability_of_few(population, n, middle, seen) >
			probability)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/*
 * Where some pages of a kind were seen, or none, how many more may there be?
 * As many as a sample would miss with a probability of more than 1 -
 * confidence.
 */
static double
interval_missed_pages(double population, double n, double seen,
					  double confidence)
{
	if (n >= population || seen > FEW_PAGES)
		return 0;
	return interval_most_pages(population, n, seen, 1 - confidence) - seen;
}

/*
 * Where some pages of a kind were seen, how few may there be?  Return the least
 * number of pages of which a sample would show as many, or more, with a
 * probability of more than 1 - confidence.
 */
static double
interval_least_pages(double population, double n, double seen,
					 double confidence)
{
	if (seen == 0 || seen > FEW_PAGES)
		return floor(population) - (n - seen);
	return interval_most_pages(population, n, seen - 1, confidence) + 1;
}

/* Wilson's lower bound for x of n pages, as a part of the population. */
static double
interval_wilson_low(double population, double n, double x, double z)
{
	double		size = n * (population - 1) / (population - n);
	double		p = x / n;

	if (x == 0)
		return 0;
	return (p + z * z / (2 * size) -
			z * sqrt(p * (1 - p) / size + z * z / (4 * size * size))) /
		(1 + z * z / size);
}

Bounded
IntervalOfCount(double population, double n, double x, double confidence)
{
	Bounded	result = {x, x, x};
	double		z = NormalQuantile(confidence);

	if (n >= population)
		return result;
	if (n == 0)
		return (Bounded) {0, 0, population};
	result.value = x / n * population;
	result.low = population * interval_wilson_low(population, n, x, z);
	result.high = population *
		(1 - interval_wilson_low(population, n, n - x, z));
	result.low = Min(result.low,
					 interval_least_pages(population, n, x, confidence));
	result.high = Max(result.high, population -
					  interval_least_pages(population, n, n - x, confidence));
	result.high = Max(result.high,
					  x + interval_missed_pages(population, n, x, confidence));
	result.low = Min(result.low,
					 population - (n - x) -
					 interval_missed_pages(population, n, n - x, confidence));
	result.low = Max(result.low, x);
	result.high = Min(result.high, population - (n - x));
	return result;
}

/*
 * The interval of a mean of the sample: Student's, lengthened on the side of
 * the tail, and widened by what may have been missed.
 *		squares		sum over the sample of the squares of residuals
 *		cubes		sum of their cubes
 *		df			degrees of freedom
 *		missed		part of the total that may have been missed
 *		most		the greatest mean that this part can have; the least is 0
 */
static Bounded
interval_of_mean(const Moments *moments, double mean, double squares,
				 double cubes, double df, double missed, double most)
{
	double		n = moments->n;
	double		f = n / moments->population;
	double		t = StudentQuantile(moments->confidence, df);
	double		variance = squares / (n - 1);
	double		half;
	double		tail = 0;
	Bounded		result = {mean, 0, most};

	if (df < 1)
		return result;
	/* if all are alike, what is left is the error of subtraction */
	if (variance > 1e-9 * mean * mean)
		tail = cubes / squares / n *
			((1 - f) * t * t / 2 - (1 - 2 * f) * (t * t - 1) / 6);
	half = t * sqrt(Max(variance, 0) / n * (1 - f));
	result.low = Min(mean - half + Min(tail, 0), mean - missed * mean);
	result.high = Max(mean + half + Max(tail, 0),
					  mean + missed * (most - mean));
	return result;
}

Bounded
IntervalOfTotal(const Moments *moments, int value, double most)
{
	double		n = moments->n;
	double		population = moments->population;
	double		sum = moments->sum[value];
	double		mean = sum / n;
	double		squares = interval_cross(moments, value, value);
	Bounded		result;

	if (n >= population)
		return (Bounded) {sum, sum, sum};
	if (n == 0)
		return (Bounded) {0, 0, population * most};
	most = Max(most, moments->largest[value]);
	result = interval_of_mean(moments, mean, squares - sum * mean,
							  moments->cubes[value][value] -
							  3 * mean * squares + 2 * mean * mean * sum,
							  n - 1,
							  interval_missed_pages(population, n, 0,
													moments->confidence) /
							  population,
							  most);
	result.value *= population;
	result.low = Max(result.low * population, sum);
	result.high = Min(result.high * population,
					  sum + (population - n) * most);
	return result;
}

Bounded
IntervalOfPart(const Moments *moments, int part, int base)
{
	double		n = moments->sum[base];
	double		population = n / moments->n * moments->population;
	Bounded	result;

	if (n == 0)
		return (Bounded) {NAN, NAN, NAN};
	result = IntervalOfCount(population, n, moments->sum[part],
							 moments->confidence);
	result.value /= population;
	result.low /= population;
	result.high /= population;
	return result;
}

Bounded
IntervalOfRatio(const Moments *moments, int value, int base, double most)
{
	double		n = moments->n;
	double		population = moments->population;
	double		ratio = moments->sum[value] / moments->sum[base];
	double		mean = moments->sum[base] / n;	/* of the base */
	double		missed;
	Bounded		result;

	if (n == 0 || moments->sum[base] == 0)
		return (Bounded) {NAN, NAN, NAN};
	if (n >= population)
		return (Bounded) {ratio, ratio, ratio};

	missed = interval_missed_pages(population, n, 0, moments->confidence);
	most = missed * Max(most, moments->largest[base]);
	result = interval_of_mean(moments, ratio,
							  (interval_cross(moments, value, value) -
							   2 * ratio *
							   interval_cross(moments, value, base) +
							   ratio * ratio *
							   interval_cross(moments, base, base)) /
							  (mean * mean),
							  (moments->cubes[value][value] -
							   3 * ratio * moments->cubes[value][base] +
							   3 * ratio * ratio * moments->cubes[base][value] -
							   ratio * ratio * ratio *
							   moments->cubes[base][base]) /
							  (mean * mean * mean),
							  moments->nonzero[base] - 1,
							  most / (most + (population - missed) * mean), 1);
	result.low = Max(result.low, 0);
	result.high = Min(result.high, 1);
	return result;
}
