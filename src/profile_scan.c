/*-------------------------------------------------------------------------
 *
 * profile_scan.c
 *		The functions of index scans that function profiles show.
 *
 * Compiled by "make PROFILE=1" only.  The profiled functions do not depend on
 * this file: where one file calls a function of another or of the server, the
 * linker puts a call of the function here in its place (--wrap).  So each
 * function that is named here must be named in the Makefile, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/visibilitymap.h"
#include "index/btree_leaf.h"
#include "observe/profile.h"
#include "read/page_read.h"
#include "read/window.h"
#include "scan/heap_ahead.h"
#include "scan/scan_node.h"

/*
 * Define the function that calls of "name" go through.  That it does not have
 * other parameters than "name" is for the compiler to see.
 */
#define WRAPPED(function, type, name, parameters, arguments) \
	extern typeof(name) __real_##name, __wrap_##name; \
	type \
	__wrap_##name parameters \
	{ \
		return PROFILED(function, __real_##name arguments); \
	}

#define WRAPPED_VOID(function, name, parameters, arguments) \
	extern typeof(name) __real_##name, __wrap_##name; \
	void \
	__wrap_##name parameters \
	{ \
		PROFILED_VOID(function, __real_##name arguments); \
	}

WRAPPED(PROFILE_HEAP_FETCH, bool, ScanFetch,
		(ScanNode *node, IndexScanDesc scan, ScanDirection direction,
		 TupleTableSlot *slot),
		(node, scan, direction, slot))
WRAPPED(PROFILE_PAGE_ROWS, bool, PageRowsLookUp,
		(PageRows **rows, MemoryContext mcxt, IndexScanDesc scan,
		 ScanDirection direction, int64 most, int64 certain),
		(rows, mcxt, scan, direction, most, certain))
WRAPPED(PROFILE_HOT_SEARCH, bool, heap_hot_search_buffer,
		(ItemPointer tid, Relation relation, Buffer buffer, Snapshot snapshot,
		 HeapTuple tuple, bool *all_dead, bool first_call),
		(tid, relation, buffer, snapshot, tuple, all_dead, first_call))
WRAPPED(PROFILE_VISIBILITY_MAP, uint8, visibilitymap_get_status,
		(Relation rel, BlockNumber block, Buffer *vm_buffer),
		(rel, block, vm_buffer))
WRAPPED_VOID(PROFILE_PRUNE, heap_page_prune_opt, LOOKAHEAD_PRUNE_PARAMS,
			 LOOKAHEAD_PRUNE_ARGS)
WRAPPED(PROFILE_FOLLOW, bool, HeapAheadFollow,
		(HeapAhead *ahead, IndexScanDesc scan, ScanDirection direction,
		 uint64 returned, bool anew),
		(ahead, scan, direction, returned, anew))
WRAPPED_VOID(PROFILE_FILL, HeapAheadFill,
			 (HeapAhead *ahead, IndexScanDesc scan, int distance, int64 rows,
			  int64 certain),
			 (ahead, scan, distance, rows, certain))
WRAPPED(PROFILE_ENTRIES_NEXT, bool, EntriesAheadNext,
		(EntriesAhead *ahead, IndexScanDesc scan, LeafLook *look,
		 BlockNumber *block, uint64 *ordinal),
		(ahead, scan, look, block, ordinal))
WRAPPED(PROFILE_DESCENTS_NEXT, bool, BTreeDescentsNext,
		(BTreeDescents *descents, IndexScanDesc scan, ScanDirection dir,
		 uint64 returned, BTreeLeaf *leaf),
		(descents, scan, dir, returned, leaf))
WRAPPED(PROFILE_LEAF_START, bool, PageReadStart,
		(Relation rel, BlockNumber block, PageRead *page, const void *owner),
		(rel, block, page, owner))
WRAPPED(PROFILE_LEAF_EXAMINE, bool, BTreeLeafExamine,
		(BTreeLeaf *leaf, BlockNumber page, Buffer buffer, IndexScanDesc scan,
		 ScanDirection dir, BlockNumber from),
		(leaf, page, buffer, scan, dir, from))
WRAPPED(PROFILE_VISIT_BLOCK, bool, HeapAheadVisit,
		(HeapAhead *ahead, IndexScanDesc scan), (ahead, scan))
WRAPPED(PROFILE_READ_DIRECT, Buffer, ReleaseAndReadBuffer,
		(Buffer buffer, Relation relation, BlockNumber block),
		(buffer, relation, block))
WRAPPED_VOID(PROFILE_WINDOW_START, WindowStart, (Window *window), (window))
WRAPPED(PROFILE_WINDOW_TAKE, Buffer, WindowTake,
		(Window *window, BlockNumber block, bool *was_read),
		(window, block, was_read))
WRAPPED_VOID(PROFILE_WINDOW_DRAIN, WindowDrain, (Window *window), (window))
