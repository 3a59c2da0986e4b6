/*-------------------------------------------------------------------------
 *
 * updated_rows.h
 *		The rows that an UPDATE is going to write: of what its plan has
 *		returned, and of what it will return.
 *
 * The plan of an UPDATE returns the columns that are set.  The others are those
 * of the old row, whose page it has just read.  If no column that an index
 * depends on gets another value, the server makes no entries, and nothing is
 * looked up.
 *
 * The plan is not executed early, since it reads the table that is written to.
 * But where the rows of the table that it comes to next are known, and lie on
 * pages in shared buffers, what it will make of them can be computed:
 * - a scan of the table knows the rows that follow (coming_rows.h);
 * - a nested loop has fetched outer rows ahead, and the index scan of the table
 *	 on its inner side knows the first row that each of them matches (join.h).
 *
 * A row that is computed so is a guess.  It may be one that the plan does not
 * return, or not in this way; then pages were read for nothing.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_UPDATED_ROWS_H
#define PG_LOOKAHEAD_UPDATED_ROWS_H

#include "write/write_node.h"

/* Are rows that an UPDATE comes to next known, as far as is seen at once? */
extern bool UpdatedRowsAreKnown(const ModifyTableState *statement);

/*
 * Prepare to compute rows of what the plan has returned; return the reason if
 * the statement will make no entries in indexes.
 */
extern Refusal UpdatedRowsPrepare(WriteNode *node);

/*
 * The row that the server will write, of what the plan has returned; NULL if it
 * will make no entries, or if that is not known.
 */
extern TupleTableSlot *UpdatedRow(WriteNode *node, TupleTableSlot *returned);

/*
 * Prepare to compute rows of what the plan will return; return the reason if
 * that cannot be done.
 */
extern Refusal UpdatedRowsOpen(WriteNode *node);

/* Go on behind the row that the plan has returned. */
extern void UpdatedRowsRestart(UpdatedRows *rows);

/*
 * The next row, whose tts_tid is that of the old row; NULL if none is known
 * now.  *has_entries: it gets entries in indexes, and these are known.
 */
extern TupleTableSlot *UpdatedRowsNext(WriteNode *node, bool *has_entries);

/*
 * The plan has returned a row that had been computed: nobody can tell when a
 * random value was made, so that it gets those by which it was looked up.
 */
extern void UpdatedRowsGive(const UpdatedRows *rows, TupleTableSlot *returned,
							const TupleTableSlot *computed);

#endif							/* PG_LOOKAHEAD_UPDATED_ROWS_H */
