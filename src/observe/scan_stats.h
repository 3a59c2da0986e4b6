/*-------------------------------------------------------------------------
 *
 * scan_stats.h
 *		Counters of index scans that look ahead: per node for EXPLAIN, and
 *		summed over all processes for the view lookahead.index_scan_stats.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_SCAN_STATS_H
#define PG_LOOKAHEAD_SCAN_STATS_H

typedef struct ScanCounters
{
	uint64		scans;			/* scan nodes that looked ahead */
	uint64		blocks_read;	/* heap blocks whose read was started ahead */
	uint64		reads;			/* the reads that took; neighbours combine */
	uint64		reads_combined; /* of these, reads of more than one block */
	uint64		blocks_hit;		/* heap blocks looked at ahead, found cached */
	uint64		blocks_visited; /* heap blocks visited while looking ahead */
	uint64		blocks_direct;	/* of these, not looked at ahead */
	uint64		blocks_unused;	/* read ahead and never visited */
	uint64		blocks_evicted; /* looked at ahead, and gone when visited */
	uint64		stalls;			/* visits that waited for a read to end */
	uint64		leaf_pages_read;	/* leaf pages read ahead, of btrees */
	uint64		leaf_reads;		/* the reads that took */
	uint64		leaf_pages_unused;	/* of these pages, those never visited */
	uint64		max_distance;	/* largest number of blocks in the window */
} ScanCounters;

/* Install what statistics need; from _PG_init(). */
extern void ScanStatsInit(void);

/*
 * Attach to the shared totals, once in a process, before there is anything to
 * count.  Raises no error: if there is no memory, nothing is counted.
 */
extern void ScanStatsAttach(void);

/*
 * Add to what this process has counted.  It becomes visible to others when the
 * transaction ends.
 */
extern void ScanStatsAdd(const ScanCounters *counters);

/*
 * How many nodes of index scans this process has served so far, whether they
 * read ahead or not.  Not shared: short scans of cached pages are to pay for no
 * more than an increment.
 */
extern uint64 ScanStatsServed;

#endif							/* PG_LOOKAHEAD_SCAN_STATS_H */
