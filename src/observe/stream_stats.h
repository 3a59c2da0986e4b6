/*-------------------------------------------------------------------------
 *
 * stream_stats.h
 *		How many blocks the streamed paths of each access method have read,
 *		summed over all processes and databases since the server started.
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

/*
 * Add blocks that came through a stream, cached or not.  Visible at once.  It
 * may raise an error (shared memory), so no page lock may be held.
 */
extern void StreamStatsAdd(StreamUser user, uint64 blocks);

/* The sum so far.  May raise an error, too. */
extern uint64 StreamStatsGet(StreamUser user);

#endif							/* PG_LOOKAHEAD_STREAM_STATS_H */
