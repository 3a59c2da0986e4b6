/*-------------------------------------------------------------------------
 *
 * sample.c
 *		Choosing pages of a relation by chance, and reading them.
 *
 * The pages are read in the order of the file, many reads in flight.  Clusters
 * of neighbouring pages can be read faster, page for page, but tell less about
 * the other pages; this loss was mostly larger than the gain.
 *
 * Where a precision is asked for, the first PILOT_PAGES pages tell how many are
 * needed; as many more are then chosen among the others, so that all together
 * are a simple random sample again (D. R. Cox, "Estimation by double sampling",
 * Biometrika 39, 1952).
 *
 * Blocks of a file are only given back under AccessExclusiveLock, so that the
 * caller's lock keeps those that were chosen.  What is added to the relation
 * meanwhile is not looked at.
 *
 * A page is counted as corrupt, and has none of the values that are estimated,
 * if the server's check or its access method does not recognise it, or if
 * looking at it raises an error.  Errors end the sweep; so it runs in a
 * subtransaction, and after an error the page that was due is read by itself,
 * in another one, to see whether it is the culprit.  (With combined reads, it
 * may be a later page.)
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "inspect/estimate.h"
#include "inspect/inspect.h"
#include "miscadmin.h"
#include "observe/progress.h"
#include "storage/bufmgr.h"
#include "read/sweep.h"
#include "utils/memutils.h"
#include "utils/sampling.h"

/* Pages that decide how many are needed. */
#define PILOT_PAGES 1000

/* More than the pilot says, since what it says is an estimate, too. */
#define PILOT_SAFETY 1.1

/*
 * Choose n of the numbers 0 .. population - 1, each set of n as likely as any
 * other, as ANALYZE chooses blocks.  The numbers are sorted.
 */
static BlockNumber *
sample_draw(pg_prng_state *random, BlockNumber population, BlockNumber n)
{
	BlockNumber *drawn = palloc_extended(n * sizeof(BlockNumber),
										 MCXT_ALLOC_HUGE);
	BlockSamplerData sampler;

	BlockSampler_Init(&sampler, population, n, pg_prng_uint32(random));
	for (BlockNumber i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		drawn[i] = BlockSampler_Next(&sampler);
	}
	return drawn;
}

/*
 * Make numbers that were drawn from what is left without the taken ones into
 * numbers of the whole.  Both are sorted.
 */
static void
sample_pass_over(BlockNumber *numbers, BlockNumber n,
				 const BlockNumber *taken, BlockNumber ntaken)
{
	BlockNumber t = 0;

	for (BlockNumber i = 0; i < n; i++)
	{
		while (t < ntaken && taken[t] <= numbers[i] + t)
			t++;
		numbers[i] += t;
	}
}

/* Items to read. */
typedef struct Items
{
	Estimate   *estimate;
	const BlockNumber *list;	/* NULL: all that may be sampled */
	BlockNumber end;
	MemoryContext context;		/* for what only the reading needs */
} Items;

/* The block of an item. */
static BlockNumber
sample_block(BlockNumber item, void *arg)
{
	const Items *items = arg;

	return items->estimate->method->first +
		(items->list != NULL ? items->list[item] : item);
}

static void
sample_add_corrupt(Estimate *estimate, BlockNumber block)
{
	static const double nothing[MAX_VALUES] = {0};

	if (estimate->corrupt < CORRUPT_NAMED)
		estimate->corrupt_blocks[estimate->corrupt] = block;
	estimate->corrupt++;
	MomentsAdd(&estimate->moments, nothing);
}

/* Read the items estimate->next .. end - 1, and look at their pages. */
static void
sample_sweep_items(void *arg)
{
	const Items *items = arg;
	Estimate   *estimate = items->estimate;
	MemoryContext caller = MemoryContextSwitchTo(items->context);
	Sweep		sweep = {.rel = estimate->rel};
	Buffer		buffer;

	if (items->list != NULL)
	{
		sweep.first = estimate->next;
		sweep.end = items->end;
		sweep.locate = sample_block;
		sweep.arg = arg;
	}
	else
	{
		sweep.first = estimate->method->first + estimate->next;
		sweep.end = estimate->method->first + items->end;
	}
	SweepBegin(&sweep);
	MemoryContextSwitchTo(caller);
	while (BufferIsValid(buffer = SweepNext(&sweep)))
	{
		double		values[MAX_VALUES] = {0};
		bool		sound;

		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		estimate->looking = true;
		sound = estimate->method->look(estimate, SweepBlock(&sweep), buffer,
									   values);
		estimate->looking = false;
		UnlockReleaseBuffer(buffer);
		if (sound)
			MomentsAdd(&estimate->moments, values);
		else
			sample_add_corrupt(estimate, SweepBlock(&sweep));
		estimate->next++;
	}
	SweepEnd(&sweep);
}

/*
 * Read them in a subtransaction.  False, with what was read so far counted, if
 * a page is found to be corrupt by an error.
 */
static bool
sample_try_items(Items *items)
{
	Estimate   *estimate = items->estimate;
	ErrorData  *error;

	/* an error leaves what a sweep has allocated, and there may be many */
	items->context = AllocSetContextCreate(CurrentMemoryContext,
										   "pages of a sample",
										   ALLOCSET_DEFAULT_SIZES);
	error = InspectTry(sample_sweep_items, items);
	MemoryContextDelete(items->context);

	if (error == NULL)
		return true;
	if (error->sqlerrcode != ERRCODE_DATA_CORRUPTED &&
		(!estimate->looking || InspectErrorIsOfSession(error)))
		ReThrowError(error);
	estimate->looking = false;
	FreeErrorData(error);

	/* what is left will be expected anew */
	ProgressExpect(-(uint64) (items->end - estimate->next));
	return false;
}

/* Look at n pages: of a list, or if that is NULL the first ones. */
static void
sample_read_items(Estimate *estimate, const BlockNumber *list, BlockNumber n)
{
	Items		items = {estimate, list, n};

	estimate->next = 0;
	while (estimate->next < n)
	{
		BlockNumber item = estimate->next;

		if (sample_try_items(&items))
			items.end = n;
		else if (items.end > item + 1)
			items.end = estimate->next + 1;
		else
		{
			sample_add_corrupt(estimate, sample_block(item, &items));
			estimate->next++;
			items.end = n;
		}
	}
}

/*
 * How many pages it takes until the interval of the free bytes is as narrow as
 * was asked for, as the pages that were read suggest.  The square of its width
 * goes by 1/n - 1/N.
 */
static BlockNumber
sample_pages_needed(Estimate *estimate)
{
	const Moments *moments = &estimate->moments;
	double		wanted = estimate->options->precision * moments->population *
		BLCKSZ;
	Bounded	free = IntervalOfTotal(moments, VALUE_FREE,
									   estimate->method->most_free);
	double		half = Max(free.high - free.value, free.value - free.low);
	double		unit = half * half /
		(1 / moments->n - 1 / moments->population);
	double		needed;

	if (half <= wanted)
		return 0;
	needed = PILOT_SAFETY /
		(wanted * wanted / unit + 1 / moments->population);
	return needed >= moments->population ? (BlockNumber) moments->population :
		(BlockNumber) ceil(needed);
}

void
SampleRead(Estimate *estimate)
{
	EstimateOptions *options = estimate->options;
	BlockNumber population = (BlockNumber) estimate->moments.population;
	BlockNumber n = options->sample_pages;
	BlockNumber needed;
	BlockNumber more;
	BlockNumber *pilot;
	BlockNumber *rest;

	if (options->precision > 0)
		n = Min(n, PILOT_PAGES);
	if (n >= population)
	{
		sample_read_items(estimate, NULL, population);
		return;
	}

	pilot = sample_draw(&options->random, population, n);
	ProgressPhase(options->precision > 0 ? "reading pilot sample" :
				  "reading sample");
	sample_read_items(estimate, pilot, n);
	if (options->precision == 0 ||
		(needed = sample_pages_needed(estimate)) <= n)
		return;

	more = Min(needed - n, INT_MAX);	/* which is a sampler's limit */
	rest = sample_draw(&options->random, population - n, more);
	sample_pass_over(rest, more, pilot, n);
	ProgressPhase("reading sample");
	sample_read_items(estimate, rest, more);
}
