/*-------------------------------------------------------------------------
 *
 * index_keys.h
 *		The keys that rows to be written will have in an index: a source of
 *		look-ups (lookup.h).
 *
 * The server will insert an entry for the row, or look for a conflict.  Either
 * way it descends to the leaf page of the row's key; where it looks for a
 * conflict, it visits the row that it finds, too.
 *
 * No code is run for the keys but the server's own, and none that can fail: the
 * statement may fail at that row before it comes to the index.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_INDEX_KEYS_H
#define PG_LOOKAHEAD_INDEX_KEYS_H

#include "lookup/lookup.h"
#include "nodes/execnodes.h"

typedef struct IndexKeys IndexKeys;

/* What the indexes of one statement share. */
typedef struct IndexShared
{
	LookupShared lookups;
	EState	   *estate;
	ExprContext *econtext;		/* shared with other nodes: reset before use */
	bool		forced;			/* look ahead whether it pays or not */
} IndexShared;

/*
 * Create the state for the keys of a table's index, in the caller's memory
 * context.  conflicts: the server looks for conflicting rows in this index
 * before it inserts.  Return NULL, and the reason in *refusal, if it cannot be
 * known early which pages are needed.
 */
extern IndexKeys *IndexKeysCreate(IndexShared *shared, Relation heap,
								  Relation index, bool conflicts,
								  Refusal *refusal);

/* Does the server look for conflicting rows in it? */
extern bool IndexKeysMayConflict(const IndexKeys *index);

/* The look-ups of its keys. */
extern Lookup *IndexKeysLookup(const IndexKeys *index);

/*
 * A row has been written.  Note whether pages of the index had to be read for
 * it, or would have had to be.
 */
extern void IndexKeysNoteReads(IndexKeys *index);

/*
 * Have pages of the index had to be read for one of the last rows?  Where not,
 * nothing is looked up.
 */
extern bool IndexKeysAreActive(const IndexKeys *index);

/*
 * Compute the key of a row of the table, and do for it what LookupAdvance()
 * does.
 */
extern void IndexKeysAdvance(IndexKeys *index, LookupKey *key,
							 TupleTableSlot *row, bool wait);

/*
 * The blocks of indexes that this process has read, as its statistics count; -1
 * if one has none.  Some of the indexes may be NULL.
 */
extern int64 IndexMisses(const Relation *indexes, int n);

#endif							/* PG_LOOKAHEAD_INDEX_KEYS_H */
