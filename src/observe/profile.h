/*-------------------------------------------------------------------------
 *
 * profile.h
 *		Calls and time of functions, per process.
 *
 * A function that is to be seen is entered and left through these macros.
 * While pg_lookahead.track_functions is off, that is one branch on a bool:
 *
 *		found = PROFILED(PROFILE_HEAP_FETCH, fetch_heap(...));
 *
 * Calls are always counted.  Reading the clock takes as long as much of what
 * is measured, so that time is taken of one outermost call in many
 * (pg_lookahead.track_functions_interval), with all calls that it makes, and
 * weighted accordingly; profile.c says how.
 *
 * What is entered need not be left: after an error, the executor hooks and
 * transaction callbacks leave what was entered since.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_PROFILE_H
#define PG_LOOKAHEAD_PROFILE_H

#include "access/amapi.h"
#include "executor/instrument.h"
#include "utils/guc.h"
#include "utils/relcache.h"

/* Keep in step with the table in profile.c. */
typedef enum ProfileFunction
{
	/* called for each row or heap page of a scan */
	PROFILE_INDEX_SCAN,
	PROFILE_INDEX_ONLY_SCAN,
	PROFILE_BITMAP_HEAP_SCAN,
	PROFILE_AMGETTUPLE,
	PROFILE_AMGETBITMAP,
	PROFILE_AMRESCAN,
	PROFILE_DEAD_ITEMS,
	PROFILE_HEAP_FETCH,
	PROFILE_VISIBILITY_RUN,
	PROFILE_HOT_SEARCH,
	PROFILE_VISIBILITY_MAP,
	PROFILE_PRUNE,
	PROFILE_LOOK_AHEAD,
	PROFILE_REFILL,
	PROFILE_SCOUT_NEXT,
	PROFILE_LEAF_START,
	PROFILE_LEAF_EXAMINE,
	PROFILE_PILOT_NEXT,
	PROFILE_VISIT_BLOCK,
	PROFILE_WINDOW_START,
	PROFILE_WINDOW_TAKE,
	PROFILE_WINDOW_DRAIN,
	PROFILE_READ_WAIT,
	PROFILE_READ_DIRECT,

	/* PostgreSQL's own counters */
	PROFILE_SERVER_READ,

	/* called for each page of a relation: timed each time */
	PROFILE_STREAM_NEXT,
	PROFILE_STREAM_CALLBACK,
	PROFILE_PAGE_BTREE,
	PROFILE_PAGE_HASH,
	PROFILE_PAGE_BLOOM,
	PROFILE_PAGE_HEAP,
	PROFILE_PAGE_HEAP_APPROX,
	PROFILE_PAGE_INDEX,
	PROFILE_VACUUM_HASH,
	PROFILE_VACUUM_GIN,
	PROFILE_VACUUM_BLOOM,
	PROFILE_SCAN_BLOOM,
	PROFILE_LOG_PAGES,
	PROFILE_NFUNCTIONS
} ProfileFunction;

#define PROFILE_FIRST_PAGE PROFILE_STREAM_NEXT

/* Member i of a histogram counts calls of 2^i up to 2^(i+1) ns. */
#define PROFILE_BUCKETS 40

/* Sums over the calls of a function; see docs/profiles.md for each. */
typedef struct ProfileSums
{
	uint64		calls;
	uint64		timed;
	uint64		total_ns;
	uint64		self_ns;
	uint64		max_ns;
	double		sum_sq_ns2;
	uint64		histogram[PROFILE_BUCKETS];
} ProfileSums;

/* A path of nested calls; its last member, and where the rest is. */
typedef struct ProfilePath
{
	uint8		parent;			/* index of its path; 0: there is none */
	uint8		function;
	uint64		calls;			/* these three are estimates, as the sums */
	uint64		total_ns;
	uint64		self_ns;
} ProfilePath;

/* Paths beyond so many are counted with the path that calls them. */
#define PROFILE_MAX_PATHS 255

/* What a call costs more, in nanoseconds. */
typedef struct ProfileOverhead
{
	double		counted_ns;		/* that is only counted */
	double		timed_ns;		/* that is timed */
	double		within_ns;		/* of this, what falls into its own time */
} ProfileOverhead;

/* What is being done with the outermost function that has been entered. */
typedef enum ProfileState
{
	PROFILE_OUTSIDE,			/* there is none */
	PROFILE_COUNTING,
	PROFILE_TIMING
} ProfileState;

/* What this process has measured since it began. */
typedef struct Profile
{
	ProfileState state;
	int			depth;			/* TIMING: functions entered and not left */
	int64		reads_seen;		/* shared_blks_read at the last timed call; -1:
								 * not that of any, so that none is skipped */
	int			countdown[PROFILE_NFUNCTIONS];	/* calls to the next timed */
	ProfileSums sums[PROFILE_NFUNCTIONS];
	int			npaths;
	ProfilePath paths[PROFILE_MAX_PATHS + 1];
	ProfileOverhead overhead;
} Profile;

/* These two are looked at so often that it pays to say where they are. */
#define PROFILE_HERE __attribute__((visibility("hidden")))

extern PROFILE_HERE Profile lookahead_profile;

/* Settings, owned by pg_lookahead.c. */
extern PROFILE_HERE bool lookahead_track_functions;
extern int	lookahead_track_interval;
extern char *lookahead_profile_directory;
extern int	lookahead_profile_max_files;

/*
 * The check hook and the assign hook of lookahead_track_functions.  A process
 * that never tracks functions has no hook of the profile's.
 */
extern bool ProfileCheckTracking(bool *newval, void **extra, GucSource source);
extern void ProfileAssignTracking(bool newval, void *extra);

/* Choose whether the outermost call that is being entered is timed. */
extern void ProfileChoose(ProfileFunction function);

/* Begin to time a function.  Returns what ProfileLeave() wants. */
extern int	ProfilePush(ProfileFunction function);

/* Leave all functions but so many, and what ProfileLeave() does of it. */
extern void ProfileUnwind(int depth);

/* How many there are now, for ProfileUnwind(). */
static inline int
ProfileDepth(void)
{
	return lookahead_profile.state == PROFILE_COUNTING ?
		1 : lookahead_profile.depth;
}

/*
 * A function has turned out to be another one's work: count a call of
 * "function" that began with the function entered last, and ends now.
 */
extern void ProfileNoteSince(ProfileFunction function);

/*
 * Whether an outermost call is only counted, the most frequent case by far.  If
 * it is not, ProfileChoose() has to be called.
 */
static pg_attribute_always_inline bool
ProfileSkips(ProfileFunction function)
{
	Profile    *profile = &lookahead_profile;

	return function < PROFILE_FIRST_PAGE &&
		likely(pgBufferUsage.shared_blks_read == profile->reads_seen) &&
		likely(--profile->countdown[function] >= 0);
}

/* Enter a function.  Returns its depth for ProfileLeave(), -1: no need. */
static pg_attribute_always_inline int
ProfileEnter(ProfileFunction function)
{
	Profile    *profile = &lookahead_profile;

	profile->sums[function].calls++;
	if (likely(profile->state == PROFILE_COUNTING))
		return -1;
	if (profile->state == PROFILE_OUTSIDE)
	{
		profile->state = PROFILE_COUNTING;
		if (ProfileSkips(function))
			return 0;
		ProfileChoose(function);
	}
	return ProfilePush(function);
}

/* Leave it, and what it entered and did not leave. */
static pg_attribute_always_inline void
ProfileLeave(int depth)
{
	if (likely(lookahead_profile.state == PROFILE_COUNTING))
		lookahead_profile.state = PROFILE_OUTSIDE;
	else
		ProfileUnwind(depth);
}

/*
 * Before so many calls of one function in a loop: whether each of them has to
 * be entered.  If not, this has counted them.
 */
static pg_attribute_always_inline bool
ProfileEach(ProfileFunction function, int ncalls)
{
	if (!lookahead_track_functions)
		return false;
	if (lookahead_profile.state != PROFILE_COUNTING)
		return true;
	lookahead_profile.sums[function].calls += ncalls;
	return false;
}

/* For a stretch of code in one block. */
#define PROFILE_ENTER(function) \
	(unlikely(lookahead_track_functions) ? ProfileEnter(function) : -1)
#define PROFILE_LEAVE(entered) \
	do \
	{ \
		if (unlikely((entered) >= 0)) \
			ProfileLeave(entered); \
	} while (0)

/* Around one call, which does or does not return a value. */
#define PROFILED(function, call) \
	__extension__({ \
		int			profile_entered_ = PROFILE_ENTER(function); \
		__auto_type profile_result_ = (call); \
		PROFILE_LEAVE(profile_entered_); \
		profile_result_; \
	})
#define PROFILED_VOID(function, call) \
	do \
	{ \
		int			profile_entered_ = PROFILE_ENTER(function); \
		call; \
		PROFILE_LEAVE(profile_entered_); \
	} while (0)

/* The routine of an index's access method, as it is without profiling. */
extern const IndexAmRoutine *ProfileStockRoutine(Relation index);

/* Its name, and how its figures came about: "timed" or "counter". */
extern const char *ProfileFunctionName(ProfileFunction function);
extern const char *ProfileFunctionSource(ProfileFunction function);

#endif							/* PG_LOOKAHEAD_PROFILE_H */
