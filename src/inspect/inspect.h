/*-------------------------------------------------------------------------
 *
 * inspect.h
 *		What the SQL functions that describe a relation have in common.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_INSPECT_H
#define PG_LOOKAHEAD_INSPECT_H

#include "access/htup_details.h"
#include "access/relation.h"
#include "compat.h"
#include "fmgr.h"
#include "observe/profile.h"
#include "read/sweep.h"
#include "storage/block.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/off.h"
#include "utils/rel.h"

/*
 * Open a relation under AccessShareLock by its name, which may be qualified
 * and quoted as in SQL.  Errors: those of relation_openrv.  The caller closes
 * it with InspectClose.
 */
extern Relation InspectOpenByName(text *name);

/*
 * Define the two SQL functions that describe a relation which is given by its
 * OID, or by its name.  "describe" closes it.
 */
#define INSPECT_FUNCTIONS(function, describe) \
	PG_FUNCTION_INFO_V1(function); \
	Datum \
	function(PG_FUNCTION_ARGS) \
	{ \
		return describe(relation_open(PG_GETARG_OID(0), AccessShareLock), \
						fcinfo); \
	} \
	PG_FUNCTION_INFO_V1(function##_byname); \
	Datum \
	function##_byname(PG_FUNCTION_ARGS) \
	{ \
		return describe(InspectOpenByName(PG_GETARG_TEXT_PP(0)), fcinfo); \
	}

/*
 * Close a relation and release its lock.  What lookahead.progress tells of it
 * ends, too.
 */
extern void InspectClose(Relation rel);

/*
 * Refuse a temporary relation of another session (0A000), whose pages may
 * only exist in that session's memory.  What is "tables" or "indexes", for
 * the message.
 */
extern void InspectRefuseOtherTemp(Relation rel, const char *what);

/*
 * Check that a relation is an index of an access method, and valid, and not
 * another session's temporary one.  Errors: 42809 if it is not such an index,
 * 0A000 as above, 55000 if it is not valid.
 *		am		access method the index must have
 *		kind	"btree", "hash", "GIN", "bloom": for the message
 *		what	"tables" or "indexes": for InspectRefuseOtherTemp
 */
extern void InspectCheckIndex(Relation rel, Oid am, const char *kind,
							  const char *what);

/* Refuse an index that is not valid (55000): its contents may be partial. */
extern void InspectRefuseInvalid(Relation index);

/*
 * errhint() for a partitioned table or index, which holds no pages itself;
 * nothing for other relations.  For use inside ereport().
 */
extern int	InspectHintPartitions(Relation rel);

/* Looks at one page of an index, which is share-locked. */
typedef void (*InspectPage) (void *arg, Relation index, BlockNumber block,
							 Page page);

/*
 * Show the pages first .. nblocks - 1 of an index to a function, in order.
 *		items		is it to see their line pointers?
 *		function	what this counts as in a profile
 * Inline, so that the compiler can inline "look", too.
 */
static pg_always_inline void
InspectPages(Relation index, BlockNumber first, BlockNumber nblocks,
			 bool items, ProfileFunction function, InspectPage look, void *arg)
{
	Sweep		sweep = {
		.rel = index,
		.first = first,
		.end = nblocks,
		.items = items,
	};
	Buffer		buffer;

	SweepBegin(&sweep);
	while (BufferIsValid(buffer = SweepNext(&sweep)))
	{
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		PROFILED_VOID(function, look(arg, index, SweepBlock(&sweep),
									 BufferGetPage(buffer)));
		UnlockReleaseBuffer(buffer);
	}
	SweepEnd(&sweep);
}

/* Live and dead entries of an index page; lengths in bytes. */
typedef struct ItemCounts
{
	int			live;
	int			live_len;
	int			dead;
	int			dead_len;
} ItemCounts;

/* Count the line pointers of an index page from an offset on. */
extern ItemCounts InspectCountItems(Page page, OffsetNumber first);

/*
 * Call a function in a subtransaction.  Returns NULL, or the error that the
 * function raised, in the caller's memory context; its locks and pins are then
 * released, and what it wrote to its argument stays.
 */
extern ErrorData *InspectTry(void (*function) (void *arg), void *arg);

/*
 * Has an error to do with the session (a cancel, memory, a conflict), not with
 * the relation that it looks at?
 */
extern bool InspectErrorIsOfSession(const ErrorData *error);

/*
 * A float8 rounded to two decimals, in the way contrib/pgstattuple rounds:
 * by printing and reading back.
 */
extern double InspectRounded(double value);

/*
 * heap.c and heap_approx.c: what the two heap diagnostics share: their sums,
 * and getting at a tuple safely.
 */

/* The sums of pgstattuple and pgstattuple_approx; lengths in bytes. */
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

/* Raise the error for a line pointer that leads out of its page (XX001). */
pg_noreturn extern void HeapPageBadItem(Relation rel, BlockNumber block,
										Page page, OffsetNumber offset);

/* Does a line pointer lead to a tuple within its page, or to none? */
static inline bool
HeapPageItemIsSound(Page page, OffsetNumber offset)
{
	ItemId		item = PageGetItemId(page, offset);

	return !ItemIdIsNormal(item) ||
		(ItemIdGetLength(item) >= SizeofHeapTupleHeader &&
		 ItemIdGetOffset(item) >= SizeOfPageHeaderData &&
		 ItemIdGetOffset(item) == MAXALIGN(ItemIdGetOffset(item)) &&
		 ItemIdGetOffset(item) + ItemIdGetLength(item) <= BLCKSZ);
}

/*
 * Point a HeapTuple at an item of a share-locked heap page.  False if the
 * line pointer has no tuple (unused, redirected or dead).  Errors: XX001 if
 * the tuple would not lie within the page, or is too short for its header:
 * the header of a page is checked when it is read, line pointers are not.
 */
static inline bool
HeapPageGetTuple(Relation rel, BlockNumber block, Page page,
				 OffsetNumber offset, HeapTuple tuple)
{
	ItemId		item = PageGetItemId(page, offset);

	if (!ItemIdIsNormal(item))
		return false;

	if (unlikely(!HeapPageItemIsSound(page, offset)))
		HeapPageBadItem(rel, block, page, offset);

	tuple->t_data = (HeapTupleHeader) PageGetItem(page, item);
	tuple->t_len = ItemIdGetLength(item);
	tuple->t_tableOid = RelationGetRelid(rel);
	ItemPointerSet(&tuple->t_self, block, offset);
	return true;
}

#endif							/* PG_LOOKAHEAD_INSPECT_H */
