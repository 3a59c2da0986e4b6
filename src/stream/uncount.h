/*-------------------------------------------------------------------------
 *
 * uncount.h
 *		Take back what was counted of an access to a block.
 *
 * A block that is looked at ahead is looked at again in its turn.  So that
 * EXPLAIN (BUFFERS) and pg_statio_* count as they do without look-ahead, one
 * of the two is taken back.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_UNCOUNT_H
#define PG_LOOKAHEAD_UNCOUNT_H

#include "executor/instrument.h"
#include "pgstat.h"
#include "utils/rel.h"

/* A hit that only this process has counted, as ReadRecentBuffer() does. */
static inline void
UncountHit(Relation rel)
{
	if (RelationUsesLocalBuffers(rel))
		pgBufferUsage.local_blks_hit--;
	else
		pgBufferUsage.shared_blks_hit--;
}

/* A read that was asked for and has not taken place. */
static inline void
UncountFetch(Relation rel)
{
	if (pgstat_should_count_relation(rel))
		rel->pgstat_info->counts.blocks_fetched--;
}

/* A hit that has been counted, or is about to be. */
static inline void
UncountAccess(Relation rel)
{
	UncountHit(rel);
	if (pgstat_should_count_relation(rel))
	{
		rel->pgstat_info->counts.blocks_fetched--;
		rel->pgstat_info->counts.blocks_hit--;
	}
}

/* What had been counted before some accesses to a relation. */
typedef struct CountsBefore
{
	BufferUsage usage;
	PgStat_TableCounts counts;
} CountsBefore;

static inline CountsBefore
CountsNow(Relation rel)
{
	CountsBefore now = {.usage = pgBufferUsage};

	if (pgstat_should_count_relation(rel))
		now.counts = rel->pgstat_info->counts;
	return now;
}

/*
 * All accesses since then, and the searches of an index.  What was read stays
 * counted as read, and in its turn will be counted as a hit: the hits to come
 * are taken back, too.
 */
static inline void
UncountSince(Relation rel, const CountsBefore *before)
{
	pgBufferUsage.shared_blks_hit = before->usage.shared_blks_hit -
		(pgBufferUsage.shared_blks_read - before->usage.shared_blks_read);
	pgBufferUsage.local_blks_hit = before->usage.local_blks_hit -
		(pgBufferUsage.local_blks_read - before->usage.local_blks_read);
	if (pgstat_should_count_relation(rel))
	{
		PgStat_TableCounts *now = &rel->pgstat_info->counts;

		now->blocks_hit -= now->blocks_fetched - before->counts.blocks_fetched;
		now->blocks_fetched = before->counts.blocks_fetched;
		now->numscans = before->counts.numscans;
	}
}

#endif							/* PG_LOOKAHEAD_UNCOUNT_H */
