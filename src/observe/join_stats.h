/*-------------------------------------------------------------------------
 *
 * join_stats.h
 *		Counters of nested loops that look ahead: per node for EXPLAIN, and
 *		summed over all processes for the view lookahead.join_stats.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_JOIN_STATS_H
#define PG_LOOKAHEAD_JOIN_STATS_H

typedef struct JoinCounters
{
	uint64		joins;			/* nested loops that looked ahead */
	uint64		rows;			/* outer rows that were fetched ahead */
	uint64		rows_unused;	/* of these, rows that nobody asked for */
	uint64		leaf_blocks_read;	/* index blocks read ahead */
	uint64		heap_blocks_read;	/* heap blocks read ahead */
	uint64		blocks_hit;		/* blocks looked at ahead, found cached */
	uint64		blocks_unused;	/* read ahead for rows that were not used */
	uint64		max_rows;		/* most outer rows ahead at a time */
} JoinCounters;

/* Install what statistics need; from _PG_init(). */
extern void JoinStatsInit(void);

/* See TotalsAttach(). */
extern void JoinStatsAttach(void);

/*
 * Add to what this process has counted.  It becomes visible to others when the
 * transaction ends.
 */
extern void JoinStatsAdd(const JoinCounters *counters);

#endif							/* PG_LOOKAHEAD_JOIN_STATS_H */
