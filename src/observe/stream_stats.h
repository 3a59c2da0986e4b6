/*-------------------------------------------------------------------------
 *
 * stream_stats.h
 *		What the streamed paths of each access method have done, summed over
 *		all processes and databases since the server started: the view
 *		lookahead.index_vacuum_stats.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_STREAM_STATS_H
#define PG_LOOKAHEAD_STREAM_STATS_H

/* Whose streamed paths are counted. */
typedef enum StreamUser
{
	STREAM_USER_HASH,
	STREAM_USER_GIN,
	STREAM_USER_BLOOM
} StreamUser;

#define STREAM_USERS (STREAM_USER_BLOOM + 1)

/* What is counted, in the order of the view's columns. */
typedef enum StreamCounter
{
	STREAM_VACUUMS_SERVED,		/* an index's VACUUM in a process */
	STREAM_VACUUMS_NOT_SERVED,	/* one that was to be served, and was not */
	STREAM_SCANS_SERVED,		/* searches by queries */
	STREAM_BLOCKS				/* that came through streams, cached or not */
} StreamCounter;

#define STREAM_COUNTERS (STREAM_BLOCKS + 1)

/* Install what statistics need; from _PG_init(). */
extern void StreamStatsInit(void);

/*
 * Add to a counter; visible at once.  To be called when no page lock is held.
 * Without shared memory nothing is counted.
 */
extern void StreamStatsAdd(StreamUser user, StreamCounter counter, uint64 n);

#endif							/* PG_LOOKAHEAD_STREAM_STATS_H */
