/*-------------------------------------------------------------------------
 *
 * compat_scan.h
 *		The differences between PostgreSQL versions in what an index scan in
 *		progress keeps in its descriptor.
 *
 * A server that prefetches for index scans by itself (PostgreSQL's developers
 * work on that) keeps other things there.  So this file is included only by
 * files that a build with SERVER_PREFETCH=1 leaves out; see docs/inside.md.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_COMPAT_SCAN_H
#define PG_LOOKAHEAD_COMPAT_SCAN_H

#ifdef LOOKAHEAD_SERVER_PREFETCH
#error "a build with SERVER_PREFETCH=1 must not need the descriptors of index scans"
#endif

#include "access/heapam.h"
#include "access/nbtree.h"
#include "access/relscan.h"
#include "compat.h"
#include "nodes/tidbitmap.h"

/* The leaf page to the left of a btree scan's position, as far as known. */
static inline BlockNumber
LookaheadPreviousLeaf(BTScanPos pos)
{
#if PG_VERSION_NUM >= 180000
	return pos->prevPage;
#else
	return P_NONE;
#endif
}

/*
 * The heap page that an index scan holds.
 */
static inline Buffer
LookaheadHeapBuffer(IndexScanDesc scan)
{
	return ((IndexFetchHeapData *) scan->xs_heapfetch)->xs_cbuf;
}

/* Return the block of the scan's heap buffer, or InvalidBlockNumber. */
static inline BlockNumber
LookaheadHeapBlock(IndexScanDesc scan)
{
	Buffer		buffer = LookaheadHeapBuffer(scan);

	return BufferIsValid(buffer) ? BufferGetBlockNumber(buffer) :
								   InvalidBlockNumber;
}

/* Take the heap page from an index scan, which then holds none. */
static inline Buffer
LookaheadGiveHeapBuffer(IndexScanDesc scan)
{
	IndexFetchHeapData *hscan = (IndexFetchHeapData *) scan->xs_heapfetch;
	Buffer		buffer = hscan->xs_cbuf;

	hscan->xs_cbuf = InvalidBuffer;
#if PG_VERSION_NUM >= 190000
	hscan->xs_blk = InvalidBlockNumber;
#endif
	return buffer;
}

/*
 * Make an index scan hold another heap page, whose pin it takes over, and
 * prune that page as the table access method does when it arrives there.
 */
static inline void
LookaheadSetHeapBuffer(IndexScanDesc scan, Buffer buffer)
{
	IndexFetchHeapData *hscan = (IndexFetchHeapData *) scan->xs_heapfetch;

	if (BufferIsValid(hscan->xs_cbuf))
		ReleaseBuffer(hscan->xs_cbuf);
	hscan->xs_cbuf = buffer;
#if PG_VERSION_NUM >= 190000
	hscan->xs_blk = BufferGetBlockNumber(buffer);
	heap_page_prune_opt(scan->heapRelation, buffer, &hscan->xs_vmbuffer,
						(hscan->xs_base.flags & SO_HINT_REL_READ_ONLY) != 0);
#else
	heap_page_prune_opt(scan->heapRelation, buffer);
#endif
}

/*
 * Open the scan of an index scan node, or of an index-only scan node, as the
 * server does when the node's first row is wanted.
 */
#if PG_VERSION_NUM >= 190000
#define LOOKAHEAD_BEGIN_SCAN(ss, index, instrument, nkeys, norderbys) \
	index_beginscan((ss)->ss_currentRelation, (index), \
					(ss)->ps.state->es_snapshot, (instrument), \
					(nkeys), (norderbys), \
					ScanRelIsReadOnly(ss) ? SO_HINT_REL_READ_ONLY : SO_NONE)
#elif PG_VERSION_NUM >= 180000
#define LOOKAHEAD_BEGIN_SCAN(ss, index, instrument, nkeys, norderbys) \
	index_beginscan((ss)->ss_currentRelation, (index), \
					(ss)->ps.state->es_snapshot, &(instrument), \
					(nkeys), (norderbys))
#else
#define LOOKAHEAD_BEGIN_SCAN(ss, index, instrument, nkeys, norderbys) \
	index_beginscan((ss)->ss_currentRelation, (index), \
					(ss)->ps.state->es_snapshot, (nkeys), (norderbys))
#endif

/* Open a scan of an index that is no plan's. */
#if PG_VERSION_NUM >= 190000
#define LOOKAHEAD_BEGIN_OWN_SCAN(table, index, snapshot, nkeys) \
	index_beginscan((table), (index), (snapshot), NULL, (nkeys), 0, SO_NONE)
#elif PG_VERSION_NUM >= 180000
#define LOOKAHEAD_BEGIN_OWN_SCAN(table, index, snapshot, nkeys) \
	index_beginscan((table), (index), (snapshot), NULL, (nkeys), 0)
#else
#define LOOKAHEAD_BEGIN_OWN_SCAN(table, index, snapshot, nkeys) \
	index_beginscan((table), (index), (snapshot), (nkeys), 0)
#endif

/*
 * Does a btree scan with array keys, whose search has come to its end, search
 * again?  Not for parallel scans.  19 has no function that could be called.
 */
static inline bool
LookaheadBTreeSearchesAgain(IndexScanDesc scan)
{
#if PG_VERSION_NUM >= 190000
	BTScanOpaque so = (BTScanOpaque) scan->opaque;

	so->scanBehind = so->oppositeDirCheck = false;
	return so->needPrimScan;
#else
	return _bt_start_prim_scan(scan, ForwardScanDirection);
#endif
}

/*
 * Preprocess the keys of a btree scan before its first search, which will do so
 * again.  17 asserts there that arrays stand at their current elements, and
 * that the keys can be met at all.
 */
static inline void
LookaheadPreprocessKeys(IndexScanDesc scan)
{
#if PG_VERSION_NUM < 180000
	BTScanOpaque so = (BTScanOpaque) scan->opaque;

	_bt_preprocess_keys(scan);
	if (!so->qual_ok)
		so->numberOfKeys = 0;
	else if (so->numArrayKeys > 0)
		_bt_start_array_keys(scan, ForwardScanDirection);
#else
	_bt_preprocess_keys(scan);
#endif
}

/*
 * Does a key of a btree scan have a value that can be compared, and that stays
 * in memory when the scan goes on?  One that skips (since 18) may stand for
 * what comes before or after all values, or after one of them.
 */
static inline bool
LookaheadBTreeKeyHasValue(Relation index, const ScanKeyData *key)
{
#if PG_VERSION_NUM >= 180000
	return (key->sk_flags & SK_BT_SKIP) == 0 ||
		((key->sk_flags & (SK_BT_MINVAL | SK_BT_MAXVAL | SK_BT_NEXT |
						   SK_BT_PRIOR)) == 0 &&
		 TupleDescAttr(RelationGetDescr(index), key->sk_attno - 1)->attbyval);
#else
	return true;
#endif
}

/*
 * Go through a bitmap that a scan goes through as well.  18 has iterators of
 * its own for bitmaps that are not shared.
 */
#if PG_VERSION_NUM >= 180000
typedef TBMPrivateIterator LookaheadBitmap;
#else
typedef TBMIterator LookaheadBitmap;
#endif

static inline LookaheadBitmap *
LookaheadBeginBitmap(TIDBitmap *tbm)
{
#if PG_VERSION_NUM >= 180000
	return tbm_begin_private_iterate(tbm);
#else
	return tbm_begin_iterate(tbm);
#endif
}

/*
 * The next page, and the offsets of at most MaxHeapTuplesPerPage rows; -1 of
 * them: any row.  False at the end.
 */
static inline bool
LookaheadNextOfBitmap(LookaheadBitmap *bitmap, BlockNumber *block,
					  OffsetNumber *offsets, int *noffsets)
{
#if PG_VERSION_NUM >= 180000
	TBMIterateResult result;

	if (!tbm_private_iterate(bitmap, &result))
		return false;
	*block = result.blockno;
	*noffsets = result.lossy ? -1 :
		tbm_extract_page_tuple(&result, offsets, MaxHeapTuplesPerPage);
	*noffsets = Min(*noffsets, MaxHeapTuplesPerPage);
#else
	TBMIterateResult *result = tbm_iterate(bitmap);

	if (result == NULL)
		return false;
	*block = result->blockno;
	*noffsets = Min(result->ntuples, MaxHeapTuplesPerPage);
	if (*noffsets > 0)
		memcpy(offsets, result->offsets, *noffsets * sizeof(OffsetNumber));
#endif
	return true;
}

static inline void
LookaheadEndBitmap(LookaheadBitmap *bitmap)
{
#if PG_VERSION_NUM >= 180000
	tbm_end_private_iterate(bitmap);
#else
	tbm_end_iterate(bitmap);
#endif
}

#endif							/* PG_LOOKAHEAD_COMPAT_SCAN_H */
