/*-------------------------------------------------------------------------
 *
 * heap.h
 *		What the two heap diagnostics share: getting at a tuple safely.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_HEAP_H
#define PG_LOOKAHEAD_HEAP_H

#include "access/htup.h"
#include "storage/block.h"
#include "storage/bufpage.h"
#include "storage/off.h"
#include "utils/relcache.h"

/*
 * Point a HeapTuple at an item of a share-locked heap page.  False if the
 * line pointer has no tuple (unused, redirected or dead).  Errors: XX001 if
 * the tuple would not lie within the page, or is too short for its header.
 */
extern bool HeapPageGetTuple(Relation rel, BlockNumber block, Page page,
							 OffsetNumber offset, HeapTuple tuple);

#endif							/* PG_LOOKAHEAD_HEAP_H */
