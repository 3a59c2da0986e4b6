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

#endif							/* PG_LOOKAHEAD_UNCOUNT_H */
