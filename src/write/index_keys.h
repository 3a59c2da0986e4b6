/*-------------------------------------------------------------------------
 *
 * index_keys.h
 *		The keys that rows to be written will have in the indexes of a table:
 *		each index is a source of keys (keys_ahead.h).
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

#include "early/keys_ahead.h"
#include "nodes/execnodes.h"

/*
 * Create a ring of rows to be written into a table, in the current memory
 * context, which lives longer than the table and its indexes are open.
 * indexes: some may be NULL; conflicts: of each, whether the server looks for
 * conflicting rows in it, or NULL if in none.  econtext: may be shared with
 * others, and is reset before use.  Return the reason if in none of the indexes
 * pages can be known early.
 */
extern Refusal IndexKeysOpen(KeysAhead *ahead, EState *estate,
							 ExprContext *econtext, Relation table,
							 const Relation *indexes, const bool *conflicts,
							 int nindexes, const RowsBounds *bounds);

/*
 * A row has been written, or was found to conflict with another one.  Note of
 * which indexes pages had to be read for it, or would have had to be.
 */
extern void IndexKeysNoteReads(KeysAhead *ahead);

/*
 * Has a row a value in a TOAST table, which is not to be read early, or one
 * that is compressed, which may be damaged?  columns: as of pull_varattnos();
 * the others are not looked at.
 */
extern bool IndexRowIsToasted(TupleTableSlot *row, const Bitmapset *columns);

#endif							/* PG_LOOKAHEAD_INDEX_KEYS_H */
