/*-------------------------------------------------------------------------
 *
 * tuples.h
 *		The sums of pgstattuple and pgstattuple_approx.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_TUPLES_H
#define PG_LOOKAHEAD_TUPLES_H

#include "storage/block.h"
#include "utils/relcache.h"

/* Lengths and free space in bytes. */
typedef struct TupleStats
{
	BlockNumber nblocks;		/* length of the relation when swept */
	uint64		tuple_count;
	uint64		tuple_len;
	uint64		dead_tuple_count;
	uint64		dead_tuple_len;
	uint64		free_space;
} TupleStats;

/*
 * Sweep a heap: table, materialized view, TOAST table or sequence.  Errors:
 * XX001 if a line pointer leads out of its page.
 */
extern void TupleStatsHeap(TupleStats *stats, Relation rel);

#endif							/* PG_LOOKAHEAD_TUPLES_H */
