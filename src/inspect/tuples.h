/*-------------------------------------------------------------------------
 *
 * tuples.h
 *		The sums of pgstattuple, and who adds what kind of page to them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_TUPLES_H
#define PG_LOOKAHEAD_TUPLES_H

#include "storage/block.h"
#include "storage/bufpage.h"
#include "storage/off.h"
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

/*
 * Add one index page to a TupleStats, as InspectPage functions.  A page whose
 * special area is not the access method's adds nothing, as in contrib.
 */
extern void TupleStatsBtreePage(void *arg, Relation index, BlockNumber block,
								Page page);
extern void TupleStatsHashPage(void *arg, Relation index, BlockNumber block,
							   Page page);
extern void TupleStatsGistPage(void *arg, Relation index, BlockNumber block,
							   Page page);

/* Add a leaf page's free space, and its items from "first" on. */
extern void TupleStatsIndexItems(TupleStats *stats, Page page,
								 OffsetNumber first);

#endif							/* PG_LOOKAHEAD_TUPLES_H */
