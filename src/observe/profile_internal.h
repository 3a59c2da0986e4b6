/*-------------------------------------------------------------------------
 *
 * profile_internal.h
 *		What the files of function profiles share among themselves.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_PROFILE_INTERNAL_H
#define PG_LOOKAHEAD_PROFILE_INTERNAL_H

#include "executor/instrument.h"
#include "observe/profile.h"

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

#endif							/* PG_LOOKAHEAD_PROFILE_INTERNAL_H */
