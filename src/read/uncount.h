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
 * looked at it.  An access is taken back at once, by the caller that has just
 * caused it, and never in advance.  Counters are changed by differences only:
 * to assign an old value would erase what other code has counted meanwhile.
 *
 * If the server's own code will look at a page again (index pages, pages of
 * the visibility map), the look ahead is not counted.  If the page had to be
 * read, a read is owed: the hit of the server's code is then counted as a read
 * (RecountReads).  pg_stat_io shows what really happened.
 *
 * What a window reads counts as read at once; see page_read.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_UNCOUNT_H
#define PG_LOOKAHEAD_UNCOUNT_H

#include "compat.h"
#include "executor/instrument.h"
#include "pgstat.h"
#include "utils/rel.h"

/* This process's counts of hits and of reads, for a relation's buffers. */
static inline int64 *
UsageHits(Relation rel)
{
	return RelationUsesLocalBuffers(rel) ? &pgBufferUsage.local_blks_hit :
										   &pgBufferUsage.shared_blks_hit;
}

static inline int64 *
UsageReads(Relation rel)
{
	return RelationUsesLocalBuffers(rel) ? &pgBufferUsage.local_blks_read :
										   &pgBufferUsage.shared_blks_read;
}

/* All blocks that this process has read, for whatever buffers. */
static inline int64
UsageAllReads(void)
{
	return pgBufferUsage.shared_blks_read + pgBufferUsage.local_blks_read;
}

/*
 * Add to the counts of hits and reads, or take back from them: this process's
 * and, if the relation has statistics, those (but not pg_stat_io).
 */
static inline void
CountsAdd(Relation rel, int64 hits, int64 reads)
{
	*UsageHits(rel) += hits;
	*UsageReads(rel) += reads;
	if (pgstat_should_count_relation(rel))
	{
		LOOKAHEAD_COUNT(rel, blocks_hit) += hits;
		LOOKAHEAD_COUNT(rel, blocks_fetched) += hits + reads;
	}
}

/*
 * The blocks of relations that this process has read, as their statistics
 * count; -1 if one has none.  Some of the relations may be NULL.
 */
static inline int64
MissesOf(const Relation *relations, int n)
{
	int64		misses = 0;

	for (int i = 0; i < n; i++)
	{
		if (relations[i] == NULL)
			continue;
		if (!pgstat_should_count_relation(relations[i]))
			return -1;
		misses += LOOKAHEAD_COUNT(relations[i], blocks_fetched) -
			LOOKAHEAD_COUNT(relations[i], blocks_hit);
	}
	return misses;
}

/* What had been counted before some accesses to a relation. */
typedef struct CountsBefore
{
	int64		hits;			/* a copy of the count in pgBufferUsage */
	int64		reads;

	/* copies of the relation's pending counts, if it has statistics */
	PgStat_Counter numscans;
	PgStat_Counter blocks_fetched;
	PgStat_Counter blocks_hit;
} CountsBefore;

static inline CountsBefore
CountsNow(Relation rel)
{
	CountsBefore now = {.hits = *UsageHits(rel), .reads = *UsageReads(rel)};

	if (pgstat_should_count_relation(rel))
	{
		now.numscans = LOOKAHEAD_COUNT(rel, numscans);
		now.blocks_fetched = LOOKAHEAD_COUNT(rel, blocks_fetched);
		now.blocks_hit = LOOKAHEAD_COUNT(rel, blocks_hit);
	}
	return now;
}

/*
 * The hits that have been counted since then.  The statistics of the relation
 * are used if there are any: pgBufferUsage may also have the hits of other
 * queries, which an operator has executed.
 */
static inline int64
HitsSince(Relation rel, const CountsBefore *before)
{
	if (pgstat_should_count_relation(rel))
		return LOOKAHEAD_COUNT(rel, blocks_hit) - before->blocks_hit;
	return *UsageHits(rel) - before->hits;
}

/*
 * The look-ups of pages that were no hits; negative if more hits than look-ups
 * were counted, as 19 may do.
 */
static inline int64
MissesSince(Relation rel, const CountsBefore *before)
{
	if (pgstat_should_count_relation(rel))
		return LOOKAHEAD_COUNT(rel, blocks_fetched) - before->blocks_fetched -
			HitsSince(rel, before);
	return *UsageReads(rel) - before->reads;
}

/* The reads that have been counted since then; see HitsSince(). */
static inline int64
ReadsSince(Relation rel, const CountsBefore *before)
{
	return Max(MissesSince(rel, before), 0);
}

/*
 * Take back all accesses since then, and the searches of an index, that are
 * made again when the scan comes there.  Returns the number of blocks that were
 * read: as many reads are owed.
 */
static inline int
UncountSince(Relation rel, const CountsBefore *before)
{
	int64		hits = HitsSince(rel, before);
	int64		misses = MissesSince(rel, before);

	CountsAdd(rel, -hits, -misses);
	if (pgstat_should_count_relation(rel))
		LOOKAHEAD_COUNT(rel, numscans) = before->numscans;
	return (int) Max(misses, 0);
}

/*
 * Take back all accesses to shared buffers since then.  Only for our own
 * look-ups in catalogs, during which no code has run that counts anything
 * else. (In a parallel worker, whose catalog caches are empty at first, these
 * look-ups read pages.)
 */
static inline void
UncountCatalogs(const BufferUsage *before)
{
	pgBufferUsage.shared_blks_hit = before->shared_blks_hit;
	pgBufferUsage.shared_blks_read = before->shared_blks_read;
}

/*
 * The scan has made accesses of its own since then: what it found because it
 * had been read ahead is counted as read, as far as reads are owed.
 */
static inline void
RecountHits(Relation rel, int *owed, const CountsBefore *before)
{
	int64		hits = Min(HitsSince(rel, before), *owed);

	CountsAdd(rel, -hits, hits);
	*owed -= hits;
}

/*
 * Do as RecountHits() where all that the scan reads by itself had been read
 * ahead and was evicted, so that its reads have been counted already.
 */
static inline void
RecountReads(Relation rel, int *owed, const CountsBefore *before)
{
	int64		reads = ReadsSince(rel, before);

	RecountHits(rel, owed, before);
	*owed -= Min(reads, *owed);
}

#endif							/* PG_LOOKAHEAD_UNCOUNT_H */
