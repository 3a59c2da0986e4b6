/*-------------------------------------------------------------------------
 *
 * totals.h
 *		Counters that are summed over all processes, for the views
 *		lookahead.index_scan_stats, join_stats, write_stats, toast_stats and
 *		index_vacuum_stats.
 *
 * Each kind of work has a struct of uint64 counters, in the order of its view's
 * columns, and one Totals.  Its nodes count in such a struct of their own,
 * which EXPLAIN shows, and add it at their end.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_TOTALS_H
#define PG_LOOKAHEAD_TOTALS_H

#include "observe/shared.h"

/* Index scans that look ahead */
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

/* Pages of keys that are looked up ahead; part of the structs below */
typedef struct LookupCounters
{
	uint64		leaf_blocks_read;	/* index blocks read ahead */
	uint64		heap_blocks_read;	/* heap blocks read ahead */
	uint64		blocks_hit;		/* blocks looked at ahead, found cached */
	uint64		blocks_unused;	/* read ahead, and not used */
} LookupCounters;

/* Nested loops that look ahead */
typedef struct JoinCounters
{
	uint64		joins;			/* nested loops that looked ahead */
	uint64		rows;			/* outer rows that were fetched ahead */
	uint64		rows_unused;	/* of these, rows that nobody asked for */
	LookupCounters pages;
	uint64		max_rows;		/* most outer rows ahead at a time */
} JoinCounters;

/* Statements that write rows and look ahead */
typedef struct WriteCounters
{
	uint64		statements;		/* statements that looked ahead */
	uint64		rows;			/* rows that were known early */
	LookupCounters pages;
	uint64		max_rows;		/* most rows ahead at a time */
} WriteCounters;

/* Scans whose rows have TOASTed values that are read ahead */
typedef struct ToastCounters
{
	uint64		scans;			/* scans that looked ahead */
	uint64		values;			/* values whose chunks were looked up ahead */
	uint64		values_unused;	/* of these, values that were not fetched */
	LookupCounters pages;		/* of TOAST tables and their indexes */
	uint64		max_values;		/* most values ahead at a time */
} ToastCounters;

/* Whose maintenance and searches are streamed */
typedef enum StreamUser
{
	STREAM_USER_HASH,
	STREAM_USER_GIN,
	STREAM_USER_BLOOM
} StreamUser;

#define STREAM_USERS (STREAM_USER_BLOOM + 1)

typedef struct StreamCounters
{
	uint64		vacuums_served; /* VACUUMs of an index in a process */
	uint64		vacuums_not_served; /* those that were to be served, and were
									 * not */
	uint64		scans_served;	/* searches by queries */
	uint64		blocks;			/* that came through streams, cached or not */
} StreamCounters;

/* The most counters of one kind. */
#define TOTALS_MAX 16

typedef struct Totals
{
	const char *name;			/* name of the segment; see SharedSegment */
	int			n;				/* number of counters */
	bool		all_sums;		/* if not, the last counter is a maximum */

	/* of totals.c */
	SharedSegment segment;
	uint64		pending[TOTALS_MAX];
	bool		have_pending;
	bool		is_known;		/* flushed at the ends of transactions */
	struct Totals *next;
} Totals;

extern Totals ScanTotals;
extern Totals JoinTotals;
extern Totals WriteTotals;
extern Totals ToastTotals;
extern Totals StreamTotals;		/* StreamCounters of each StreamUser */

/* Install what they need; from _PG_init(). */
extern void TotalsInit(Totals *totals);

/*
 * Attach to the shared memory, once in a process, before there is anything to
 * count.  Raises no error: if there is no memory, nothing is counted.
 */
extern void TotalsAttach(Totals *totals);

/* Add to what this process has counted: a struct of counters of that kind. */
extern void TotalsAdd(Totals *totals, const void *counters);

/* Add a struct of counters of that kind to another one. */
extern void TotalsSum(const Totals *totals, void *sum, const void *counters);

/*
 * Add to what the streams of a kind of index have done; visible at once.  To be
 * called when no page lock is held.
 */
extern void TotalsAddStream(StreamUser user, StreamCounters counters);

/*
 * How many nodes of index scans this process has served so far, whether they
 * read ahead or not.  Not shared: short scans of cached pages are to pay for no
 * more than an increment.
 */
extern uint64 ScansServed;

/* apply_totals.c: counters of each subscription, for lookahead.apply_stats. */

/* In the order of the view's columns; the last one is a maximum. */
typedef struct ApplyCounters
{
	uint64		changes;		/* changes that were known early */
	LookupCounters pages;
	uint64		errors;			/* that look-ahead met, and kept to itself */
	uint64		max_changes;	/* most changes ahead at a time */
} ApplyCounters;

extern void ApplyTotalsInit(void);

/*
 * Add to the counters of a subscription, at once, unless no change and no error
 * is among them; they are zero then.  Raises no error.
 */
extern void ApplyTotalsAdd(Oid subscription, ApplyCounters *counters);

#endif							/* PG_LOOKAHEAD_TOTALS_H */
