/*-------------------------------------------------------------------------
 *
 * stream_stats.c
 *		How many blocks the streamed paths of each access method have read;
 *		see stream_stats.h.
 *
 * A pass over an index is counted once, when it ends, so the counters need no
 * copy in the process.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "observe/stream_stats.h"
#include "port/atomics.h"

typedef struct SharedStreamStats
{
	pg_atomic_uint64 blocks[STREAM_USERS];
} SharedStreamStats;

static void
init_shared(void *ptr)
{
	SharedStreamStats *stats = ptr;

	for (int i = 0; i < STREAM_USERS; i++)
		pg_atomic_init_u64(&stats->blocks[i], 0);
}

/* The shared counters; attached to once in a process. */
static SharedStreamStats *
get_shared(void)
{
	static SharedStreamStats *shared = NULL;
	bool		found;

	if (shared == NULL)
		shared = LookaheadSharedMemory("pg_lookahead_stream_stats",
									   sizeof(SharedStreamStats), init_shared,
									   &found);
	return shared;
}

void
StreamStatsAdd(StreamUser user, uint64 blocks)
{
	pg_atomic_fetch_add_u64(&get_shared()->blocks[user], blocks);
}

uint64
StreamStatsGet(StreamUser user)
{
	return pg_atomic_read_u64(&get_shared()->blocks[user]);
}
