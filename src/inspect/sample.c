/*-------------------------------------------------------------------------
 *
 * sample.c
 *		Choosing pages of a relation by chance, and reading them.
 *
 * Every set of n pages is as likely as any other: a simple random sample.
 * Clusters of neighbouring pages can be read faster, page for page, but tell
 * less: docs/diagnostics.md has the measurement.  The pages are read in the
 * order of the file, many reads in flight (stream/sweep.h).
 *
 * Where a precision is asked for, the first PILOT_PAGES pages tell how much
 * pages differ, and with that how many are needed; as many more are then
 * chosen among the others, so that all together are a simple random sample
 * again (D. R. Cox, "Estimation by double sampling", Biometrika 39, 1952).
 *
 * The caller's lock on the relation keeps its blocks from going away between
 * choosing and reading.  Whatever gives blocks of a file back, TRUNCATE, VACUUM
 * of a table, or the replay of either on a standby, needs AccessExclusiveLock.
 * What is added to the relation meanwhile is not looked at.
 *
 * A page that does not pass the check which the server makes when it reads one,
 * or that its access method does not recognise, is counted as corrupt, and has
 * none of the values that are estimated.  A page that cannot be looked at
 * without an error is counted in the same way, such as one with a tuple of a
 * transaction that never was.  Errors of either kind end the sweep; so it runs
 * in a subtransaction, and after an error the page that was due is read by
 * itself, in another one, to see whether it is the culprit.  (With combined
 * reads, it may be a later page.)  That costs time where pages are damaged, and
 * nothing elsewhere.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "compat.h"
#include "inspect/estimate.h"
#include "inspect/inspect.h"
#include "miscadmin.h"
#include "observe/progress.h"
#include "storage/bufmgr.h"
#include "read/sweep.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Pages that decide how many are needed. */
#define PILOT_PAGES 1000

/* More than the pilot says, since what it says is an estimate, too. */
#define PILOT_SAFETY 1.1

static int
compare_blocks(const void *a, const void *b)
{
	BlockNumber x = *(const BlockNumber *) a;
	BlockNumber y = *(const BlockNumber *) b;

	return x < y ? -1 : x > y;
}

/*
 * Choose n of the numbers 0 .. population - 1, each set of n as likely as any
 * other.  The numbers are sorted.
 *
 * Numbers are drawn until there are n different ones.  If more than half are
 * wanted, those that are not are drawn.
 */
static BlockNumber *
draw(pg_prng_state *random, BlockNumber population, BlockNumber n)
{
	BlockNumber wanted = n > population / 2 ? population - n : n;
	BlockNumber *drawn = palloc_extended(Max(wanted, 1) * sizeof(BlockNumber),
										 MCXT_ALLOC_HUGE);
	BlockNumber ndrawn = 0;
	BlockNumber *rest;
	BlockNumber nrest = 0;

	while (ndrawn < wanted)
	{
		BlockNumber kept = 0;

		CHECK_FOR_INTERRUPTS();
		while (ndrawn < wanted)
			drawn[ndrawn++] = pg_prng_uint64_range(random, 0, population - 1);
		qsort(drawn, ndrawn, sizeof(BlockNumber), compare_blocks);
		for (BlockNumber i = 0; i < ndrawn; i++)
			if (i == 0 || drawn[i] != drawn[kept - 1])
				drawn[kept++] = drawn[i];
		ndrawn = kept;
	}
	if (wanted == n)
		return drawn;

	rest = palloc_extended(n * sizeof(BlockNumber), MCXT_ALLOC_HUGE);
	for (BlockNumber i = 0, d = 0; i < population; i++)
	{
		if (d < wanted && drawn[d] == i)
			d++;
		else
			rest[nrest++] = i;
	}
	pfree(drawn);
	return rest;
}

/*
 * Make numbers that were drawn from what is left without the taken ones into
 * numbers of the whole.  Both are sorted.
 */
static void
pass_over(BlockNumber *numbers, BlockNumber n,
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

/* The block of an item: of a list, or of all that may be sampled. */
static BlockNumber
item_block(const Estimate *estimate, const BlockNumber *list, BlockNumber item)
{
	return list != NULL ? list[item] : estimate->method->first + item;
}

static void
add_corrupt(Estimate *estimate, BlockNumber block)
{
	static const double nothing[MAX_VALUES] = {0};

	if (estimate->corrupt < CORRUPT_NAMED)
		estimate->corrupt_blocks[estimate->corrupt] = block;
	estimate->corrupt++;
	MomentsAdd(&estimate->moments, nothing);
}

/* Items to read. */
typedef struct Items
{
	Estimate   *estimate;
	const BlockNumber *list;	/* NULL: all that may be sampled */
	BlockNumber end;
	MemoryContext context;		/* for what only the reading needs */
} Items;

/* Read the items estimate->next .. end - 1, and look at their pages. */
static void
sweep_items(void *arg)
{
	const Items *items = arg;
	Estimate   *estimate = items->estimate;
	BlockNumber first = estimate->method->first;
	MemoryContext caller = MemoryContextSwitchTo(items->context);
	Sweep		sweep;
	Buffer		buffer;

	if (items->list != NULL)
		SweepBeginList(&sweep, estimate->rel, MAIN_FORKNUM, items->list,
					   estimate->next, items->end);
	else
		SweepBegin(&sweep, estimate->rel, MAIN_FORKNUM,
				   first + estimate->next, first + items->end, NULL, NULL);
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
			add_corrupt(estimate, SweepBlock(&sweep));
		estimate->next++;
	}
	SweepEnd(&sweep);
}

/*
 * Read them in a subtransaction.  False, with what was read so far counted, if
 * a page is found to be corrupt by an error.
 */
static bool
try_items(Estimate *estimate, const BlockNumber *list, BlockNumber end)
{
	Items		items = {estimate, list, end};
	ErrorData  *error;

	/* an error leaves what a sweep has allocated, and there may be many */
	items.context = AllocSetContextCreate(CurrentMemoryContext,
										  "pages of a sample",
										  ALLOCSET_DEFAULT_SIZES);
	error = InspectTry(sweep_items, &items);
	MemoryContextDelete(items.context);

	if (error == NULL)
		return true;
	if (error->sqlerrcode != ERRCODE_DATA_CORRUPTED &&
		(!estimate->looking || InspectErrorIsOfSession(error)))
		ReThrowError(error);
	estimate->looking = false;
	FreeErrorData(error);

	/* what is left will be expected anew */
	ProgressExpect(-(uint64) (end - estimate->next));
	return false;
}

/* Look at n pages: of a list, or if that is NULL the first ones. */
static void
read_items(Estimate *estimate, const BlockNumber *list, BlockNumber n)
{
	bool		single = false;

	estimate->next = 0;
	while (estimate->next < n)
	{
		BlockNumber item = estimate->next;

		if (try_items(estimate, list, single ? item + 1 : n))
			single = false;
		else if (single)
		{
			add_corrupt(estimate, item_block(estimate, list, item));
			estimate->next++;
			single = false;
		}
		else
			single = true;
	}
}

/*
 * How many pages it takes until the interval of the free bytes is as narrow as
 * was asked for, as the pages that were read suggest.  The square of its width
 * goes by 1/n - 1/N.
 */
static BlockNumber
pages_needed(Estimate *estimate)
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
	BlockNumber *pilot;
	BlockNumber *list;

	if (options->precision > 0)
		n = Min(n, PILOT_PAGES);
	if (n >= population)
	{
		read_items(estimate, NULL, population);
		return;
	}

	pilot = draw(&options->random, population, n);
	for (BlockNumber i = 0; i < n; i++)
		pilot[i] += estimate->method->first;
	ProgressPhase(options->precision > 0 ? "reading pilot sample" :
				  "reading sample");
	read_items(estimate, pilot, n);
	if (options->precision == 0 ||
		(needed = pages_needed(estimate)) <= n)
		return;

	list = draw(&options->random, population - n, needed - n);
	for (BlockNumber i = 0; i < n; i++)
		pilot[i] -= estimate->method->first;
	pass_over(list, needed - n, pilot, n);
	for (BlockNumber i = 0; i < needed - n; i++)
		list[i] += estimate->method->first;
	ProgressPhase("reading sample");
	read_items(estimate, list, needed - n);
}
