/*-------------------------------------------------------------------------
 *
 * profile.c
 *		Calls and time of functions in this process; see profile.h.
 *
 * A call is timed if the outermost call around it is.  So the times of all
 * functions come from the same stretches of execution, and in each of them the
 * self times add up to the total of the outermost call, exactly.
 *
 * An outermost call is timed
 *	- always, if it works on a whole page, or is among the first of its
 *	  function in this process;
 *	- always, if blocks were read since the last timed call: then the clock
 *	  costs little beside what it measures, and times vary much;
 *	- else if it is the one drawn by lot from track_functions_interval
 *	  successive calls; it stands for all of them.
 * Which of these applies is known before the call, and each call is in one
 * draw at most, with the same chance as all others: so the weighted sums are
 * unbiased estimates for all calls, however few there were.  Drawing by lot
 * keeps it from walking in step with, say, the number of rows on a page.
 *
 * frames[] is the stack of the timed functions entered and not left: that at
 * depth d is frames[d].  Whoever leaves a function names the depth at which
 * it was entered, so that functions in between that ended by an error are
 * left, too, at that moment.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "common/pg_prng.h"
#include "observe/profile.h"
#include "observe/profile_internal.h"
#include "port/pg_bitutils.h"

/* Of each outermost function, time so many calls before only some are. */
#define FIRST_CALLS 256

/* Calls nested more deeply are counted, and their time is their caller's. */
#define MAX_DEPTH 64

/* Calls made to learn what measuring costs, and how often. */
#define TRIALS 100
#define ROUNDS 20

typedef struct Frame
{
	instr_time	start;
	int			ncalled;		/* calls it made */
	int64		called_raw_ns;	/* their time, by the clock */
	uint64		called_ns;		/* their time, without that of the clock */
	ProfileFunction function;
	int			path;
} Frame;

/* Which call of an outermost function is timed next. */
typedef struct Draw
{
	int			interval;		/* out of so many, for which it stands */
	int			rest;			/* of these, so many come after it */
} Draw;

Profile		lookahead_profile;

static Frame frames[MAX_DEPTH];
static Draw draws[PROFILE_NFUNCTIONS];
static int	weight;				/* calls that the timed one stands for */
static int	active[PROFILE_NFUNCTIONS]; /* frames of each function */

/* The path of calling a function from another path; 0: not made yet. */
static uint8 child_path[PROFILE_MAX_PATHS + 1][PROFILE_NFUNCTIONS];

static const char *const names[] = {
	[PROFILE_INDEX_SCAN] = "IndexScan",
	[PROFILE_INDEX_ONLY_SCAN] = "IndexOnlyScan",
	[PROFILE_BITMAP_HEAP_SCAN] = "BitmapHeapScan",
	[PROFILE_AMGETTUPLE] = "amgettuple",
	[PROFILE_AMGETBITMAP] = "amgetbitmap",
	[PROFILE_AMRESCAN] = "amrescan",
	[PROFILE_DEAD_ITEMS] = "mark_dead_items",
	[PROFILE_HEAP_FETCH] = "heap_fetch",
	[PROFILE_VISIBILITY_RUN] = "visibility_run",
	[PROFILE_HOT_SEARCH] = "heap_hot_search",
	[PROFILE_VISIBILITY_MAP] = "visibility_map",
	[PROFILE_PRUNE] = "heap_page_prune",
	[PROFILE_LOOK_AHEAD] = "look_ahead",
	[PROFILE_REFILL] = "refill_window",
	[PROFILE_SCOUT_NEXT] = "scout_next",
	[PROFILE_LEAF_START] = "leaf_read_start",
	[PROFILE_LEAF_EXAMINE] = "leaf_examine",
	[PROFILE_PILOT_NEXT] = "pilot_next",
	[PROFILE_VISIT_BLOCK] = "visit_block",
	[PROFILE_WINDOW_START] = "window_start",
	[PROFILE_WINDOW_TAKE] = "window_take",
	[PROFILE_WINDOW_DRAIN] = "window_drain",
	[PROFILE_READ_WAIT] = "read_wait",
	[PROFILE_READ_DIRECT] = "read_direct",
	[PROFILE_SERVER_READ] = "server_read",
	[PROFILE_STREAM_NEXT] = "read_stream_next_buffer",
	[PROFILE_STREAM_CALLBACK] = "read_stream_callback",
	[PROFILE_PAGE_BTREE] = "pgstatindex_page",
	[PROFILE_PAGE_HASH] = "pgstathashindex_page",
	[PROFILE_PAGE_BLOOM] = "pgstatbloomindex_page",
	[PROFILE_PAGE_HEAP] = "pgstattuple_heap_page",
	[PROFILE_PAGE_HEAP_APPROX] = "pgstattuple_approx_page",
	[PROFILE_PAGE_INDEX] = "pgstattuple_index_page",
	[PROFILE_VACUUM_HASH] = "hash_vacuum_bucket",
	[PROFILE_VACUUM_GIN] = "gin_vacuum_page",
	[PROFILE_VACUUM_BLOOM] = "bloom_vacuum_page",
	[PROFILE_SCAN_BLOOM] = "bloom_scan_page",
	[PROFILE_LOG_PAGES] = "log_pages",
};

StaticAssertDecl(lengthof(names) == PROFILE_NFUNCTIONS,
				 "each function must have a name");

const char *
ProfileFunctionName(ProfileFunction function)
{
	return names[function];
}

const char *
ProfileFunctionSource(ProfileFunction function)
{
	return function == PROFILE_SERVER_READ ? "counter" : "timed";
}

bool
ProfileCheckTracking(bool *newval, void **extra, GucSource source)
{
	if (*newval)
		ProfileInstall();
	return true;
}

void
ProfileAssignTracking(bool newval, void *extra)
{
	/* whoever relies on ProfileSkips() alone looks at the setting, too */
	lookahead_profile.reads_seen = -1;
}

void
ProfileChoose(ProfileFunction function)
{
	Profile    *profile = &lookahead_profile;
	Draw	   *draw = &draws[function];
	int			interval = 1;
	int			place = 0;

	profile->state = PROFILE_TIMING;
	weight = 1;
	if (function >= PROFILE_FIRST_PAGE)
		return;
	if (pgBufferUsage.shared_blks_read != profile->reads_seen)
	{
		profile->reads_seen = pgBufferUsage.shared_blks_read;
		return;
	}
	weight = Max(draw->interval, 1);

	/* which one of the next so many it will be */
	if (lookahead_track_interval > 1 &&
		profile->sums[function].calls >= FIRST_CALLS)
	{
		interval = lookahead_track_interval;
		place = (int) pg_prng_uint64_range(&pg_global_prng_state, 0,
										   interval - 1);
	}
	profile->countdown[function] = draw->rest + place;
	draw->interval = interval;
	draw->rest = interval - 1 - place;
}

/* The path of a function called from another path. */
static int
path_of(int parent, ProfileFunction function)
{
	Profile    *profile = &lookahead_profile;
	int			path = child_path[parent][function];

	if (unlikely(path == 0))
	{
		if (profile->npaths == PROFILE_MAX_PATHS)
			return parent;
		path = ++profile->npaths;
		child_path[parent][function] = path;
		profile->paths[path].parent = parent;
		profile->paths[path].function = function;
	}
	return path;
}

/* Begin a frame; the one below it, if any, is its caller. */
static void
push(int depth, ProfileFunction function, instr_time start)
{
	Frame	   *frame = &frames[depth];

	frame->function = function;
	frame->ncalled = 0;
	frame->called_raw_ns = 0;
	frame->called_ns = 0;
	frame->path = path_of(depth > 0 ? frames[depth - 1].path : 0, function);
	active[function]++;
	frame->start = start;
}

int
ProfilePush(ProfileFunction function)
{
	instr_time	now;
	int			depth = lookahead_profile.depth;

	if (depth >= MAX_DEPTH)
		return -1;
	lookahead_profile.depth++;
	LOOKAHEAD_CLOCK(now);
	push(depth, function, now);
	return depth;
}

/*
 * End a frame.  Its self time is what remains without the calls it made, and
 * without what the clock took for it and for them.
 */
static void
pop(int depth, instr_time now)
{
	const ProfileOverhead *overhead = &lookahead_profile.overhead;
	Frame	   *frame = &frames[depth];
	ProfileSums *sums = &lookahead_profile.sums[frame->function];
	ProfilePath *path = &lookahead_profile.paths[frame->path];
	int64		raw;
	double		rest;
	uint64		self;
	uint64		total;

	INSTR_TIME_SUBTRACT(now, frame->start);
	raw = INSTR_TIME_GET_NANOSEC(now);
	rest = raw - frame->called_raw_ns - overhead->within_ns -
		frame->ncalled * (overhead->timed_ns - overhead->within_ns);
	self = rest > 0 ? (uint64) (rest + 0.5) : 0;
	total = self + frame->called_ns;
	if (depth > 0)
	{
		Frame	   *caller = &frames[depth - 1];

		caller->ncalled++;
		caller->called_raw_ns += raw;
		caller->called_ns += total;
	}

	sums->timed++;
	sums->self_ns += self * weight;
	if (--active[frame->function] == 0)
		sums->total_ns += total * weight;
	sums->max_ns = Max(sums->max_ns, total);
	sums->sum_sq_ns2 += (double) total * (double) total * weight;
	sums->histogram[total == 0 ? 0 : Min(pg_leftmost_one_pos64(total),
										 PROFILE_BUCKETS - 1)] += weight;

	/* of a path that did not find room, its caller's has only the self time */
	path->self_ns += self * weight;
	if (path->function == frame->function)
	{
		path->calls += weight;
		path->total_ns += total * weight;
	}
}

void
ProfileUnwind(int depth)
{
	Profile    *profile = &lookahead_profile;

	if (profile->depth > depth)
	{
		instr_time	now;

		LOOKAHEAD_CLOCK(now);
		while (profile->depth > depth)
			pop(--profile->depth, now);
	}
	if (depth == 0)
		profile->state = PROFILE_OUTSIDE;
}

void
ProfileNoteSince(ProfileFunction function)
{
	int			depth = lookahead_profile.depth;

	lookahead_profile.sums[function].calls++;
	if (depth == 0 || depth >= MAX_DEPTH)
		return;
	push(depth, function, frames[depth - 1].start);
	lookahead_profile.depth++;
	ProfileUnwind(depth);
}

/* Time of a call that does nothing, in nanoseconds. */
static double
trial(bool timed)
{
	int		   *countdown = &lookahead_profile.countdown[PROFILE_INDEX_SCAN];
	instr_time	start,
				end;

	LOOKAHEAD_CLOCK(start);
	for (int i = 0; i < TRIALS; i++)
	{
		int			entered;

		*countdown = timed ? 0 : PG_INT32_MAX;
		entered = ProfileEnter(PROFILE_INDEX_SCAN);
		ProfileLeave(entered);
	}
	LOOKAHEAD_CLOCK(end);
	INSTR_TIME_SUBTRACT(end, start);
	return (double) INSTR_TIME_GET_NANOSEC(end) / TRIALS;
}

void
ProfileMeasureOverhead(void)
{
	/* what was counted before the trials is put back after them */
	static Profile saved;
	Profile    *profile = &lookahead_profile;
	ProfileSums *sums = &profile->sums[PROFILE_INDEX_SCAN];
	ProfileOverhead best = {1e9, 1e9, 1e9};
	int			interval = lookahead_track_interval;

	Assert(profile->state == PROFILE_OUTSIDE);
	saved = *profile;
	lookahead_track_interval = 1;
	profile->reads_seen = pgBufferUsage.shared_blks_read;
	memset(&profile->overhead, 0, sizeof(ProfileOverhead));

	/* the process may be interrupted, so that the shortest round is right */
	for (int i = 0; i < ROUNDS; i++)
	{
		best.counted_ns = Min(best.counted_ns, trial(false));
		memset(sums, 0, sizeof(ProfileSums));
		best.timed_ns = Min(best.timed_ns, trial(true));
		best.within_ns = Min(best.within_ns, (double) sums->total_ns / TRIALS);
	}
	lookahead_track_interval = interval;

	/* the path made for the trials stays known, with nothing in it */
	saved.npaths = profile->npaths;
	for (int i = 1; i <= saved.npaths; i++)
	{
		saved.paths[i].parent = profile->paths[i].parent;
		saved.paths[i].function = profile->paths[i].function;
	}
	saved.overhead = best;
	*profile = saved;
}
