/*-------------------------------------------------------------------------
 *
 * uncount.h
 *		Take back what was counted of an access to a block.
 *
 * A block that is looked at ahead is looked at again in its turn.  So that
 * EXPLAIN (BUFFERS), pg_stat_statements and pg_statio_* count as they do
 * without look-ahead, the two looks are counted once.
 *
 * Invariant: no counter ever falls below what it was when anybody may have
 * looked at it.  A hit is therefore taken back at once, by the caller that has
 * just caused it, and never in advance.  What had to be read ahead stays
 * counted as read; the hit that it makes of the scan's own look is owed, and
 * taken back when it has been counted (SettleHits).  Counters are changed by
 * differences only: to assign an old value would erase what other code has
 * counted meanwhile.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_UNCOUNT_H
#define PG_LOOKAHEAD_UNCOUNT_H

#include "executor/instrument.h"
#include "pgstat.h"
#include "utils/rel.h"

/* This process's count of hits, and of reads, in a relation's kind of buffer. */
static inline int64 *
UsageHits(Relation rel)
{
	return RelationUsesLocalBuffers(rel) ? &pgBufferUsage.local_blks_hit :
										   &pgBufferUsage.shared_blks_hit;
}

static inline int64
UsageReads(Relation rel)
{
	return RelationUsesLocalBuffers(rel) ? pgBufferUsage.local_blks_read :
										   pgBufferUsage.shared_blks_read;
}

/* A hit, as the ordinary read of a block counts it (but for pg_stat_io). */
static inline void
CountHit(Relation rel)
{
	(*UsageHits(rel))++;
	pgstat_count_buffer_read(rel);
	pgstat_count_buffer_hit(rel);
}

/* Some hits that have just been counted, by the relation's statistics, too. */
static inline void
UncountAccesses(Relation rel, int64 hits)
{
	*UsageHits(rel) -= hits;
	if (pgstat_should_count_relation(rel))
	{
		rel->pgstat_info->counts.blocks_fetched -= hits;
		rel->pgstat_info->counts.blocks_hit -= hits;
	}
}

/* What had been counted before some accesses to a relation. */
typedef struct CountsBefore
{
	int64		hits;			/* as in pgBufferUsage */
	int64		reads;
	PgStat_TableCounts counts;
} CountsBefore;

static inline CountsBefore
CountsNow(Relation rel)
{
	CountsBefore now = {.hits = *UsageHits(rel), .reads = UsageReads(rel)};

	if (pgstat_should_count_relation(rel))
		now.counts = rel->pgstat_info->counts;
	return now;
}

/*
 * The hits that have been counted since then.  Where the relation has
 * statistics they tell, since other queries, called by an operator for one,
 * may have used buffers as well.
 */
static inline int64
HitsSince(Relation rel, const CountsBefore *before)
{
	if (pgstat_should_count_relation(rel))
		return rel->pgstat_info->counts.blocks_hit - before->counts.blocks_hit;
	return *UsageHits(rel) - before->hits;
}

/*
 * Take back the hits since then, and the searches of an index.  Returns the
 * number of blocks that were read instead, which stay counted: so many hits of
 * the scan's own are owed.
 */
static inline int
UncountSince(Relation rel, const CountsBefore *before)
{
	int64		hits = HitsSince(rel, before);
	int64		reads = UsageReads(rel) - before->reads;

	if (pgstat_should_count_relation(rel))
	{
		PgStat_TableCounts *now = &rel->pgstat_info->counts;

		reads = now->blocks_fetched - before->counts.blocks_fetched - hits;
		now->numscans -= now->numscans - before->counts.numscans;
	}
	UncountAccesses(rel, hits);
	return (int) reads;
}

/*
 * The scan has made accesses of its own since then: take back the hits that
 * are owed, as far as they have come.
 */
static inline void
SettleHits(Relation rel, int *owed, const CountsBefore *before)
{
	int			hits = (int) Min(HitsSince(rel, before), *owed);

	UncountAccesses(rel, hits);
	*owed -= hits;
}

#endif							/* PG_LOOKAHEAD_UNCOUNT_H */
