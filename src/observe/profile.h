/*-------------------------------------------------------------------------
 *
 * profile.h
 *		Calls and time of functions, per process: a tool for developers.
 *
 * A function that is to be seen is called through these macros:
 *
 *		found = PROFILED(PROFILE_HEAP_FETCH, fetch_heap(...));
 *
 * Only "make PROFILE=1" gives the macros an effect.  Otherwise they are the
 * calls in their arguments, no file src/observe/profile*.c is compiled, and
 * the library has neither a setting nor a function of profiles.
 *
 * With PROFILE=1, and pg_lookahead.track_functions on, each call is counted
 * and timed, which takes two readings of the clock.  The total time of a
 * function includes the functions that it calls, its self time does not; a
 * recursive call counts once in the total.  What the clock itself takes is
 * part of the times.  profile.c has the rest.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_PROFILE_H
#define PG_LOOKAHEAD_PROFILE_H

#include "access/amapi.h"
#include "utils/relcache.h"

typedef enum ProfileFunction
{
#define PROFILE_FUNCTION(function, name) function,
#include "observe/profile_list.h"
#undef PROFILE_FUNCTION
	PROFILE_NFUNCTIONS
} ProfileFunction;

#ifdef LOOKAHEAD_PROFILE

#include "executor/instrument.h"

/* pg_lookahead.track_functions */
extern bool lookahead_track_functions;

/* Begin a call, and end it with those inside it that an error has ended. */
extern int	ProfileEnter(ProfileFunction function);
extern void ProfileLeave(int entered);

/* Define the setting and install the hooks, when the library is loaded. */
extern void ProfileInit(void);

/* The routine of an index's access method, without what times its calls. */
extern const IndexAmRoutine *ProfileStockRoutine(Relation index);

/* Time a stretch of code, which must lie in one block of C. */
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

/* What follows is shared by the files of profiles only. */

/* Sums over the calls of a function in this process. */
typedef struct ProfileSums
{
	int64		calls;
	int64		total_ns;
	int64		self_ns;
} ProfileSums;

extern ProfileSums lookahead_profile[PROFILE_NFUNCTIONS];
extern const char *const lookahead_profile_names[PROFILE_NFUNCTIONS];

/* profile.c: whether a function has been entered and not left. */
extern bool ProfileIsInside(void);

/* profile.c: have the ends of transactions take functions off the stack. */
extern void ProfileStackInit(void);

/* profile_record.c: a process that has profiled leaves a record at its exit. */
extern void ProfileRecordInit(void);

/* PostgreSQL's counters of buffers when the first query was profiled. */
extern BufferUsage lookahead_profile_usage_before;

#else

#define ProfileInit() ((void) 0)
#define ProfileStockRoutine(index) ((const IndexAmRoutine *) (index)->rd_indam)
#define PROFILE_ENTER(function) (-1)
#define PROFILE_LEAVE(entered) ((void) (entered))
#define PROFILED(function, call) (call)
#define PROFILED_VOID(function, call) (call)

#endif							/* LOOKAHEAD_PROFILE */

#endif							/* PG_LOOKAHEAD_PROFILE_H */
