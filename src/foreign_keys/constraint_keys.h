/*-------------------------------------------------------------------------
 *
 * constraint_keys.h
 *		The keys that the check or the action of a foreign key will look up for
 *		rows that were written: a source of keys (keys_ahead.h).
 *
 * For a new row the server looks its parent up, in the unique index that the
 * constraint names; for an old row of a parent, its children, in whichever
 * index of theirs the planner has chosen.
 *
 * No code is run but the server's own, and none that can fail.  The relations
 * are not kept open between two events, since commands of triggers that run
 * there would find them in use.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_CONSTRAINT_KEYS_H
#define PG_LOOKAHEAD_CONSTRAINT_KEYS_H

#include "early/keys_ahead.h"

typedef struct ConstraintKeys ConstraintKeys;

/*
 * Create the state for a foreign key, in the given memory context.  is_parent:
 * rows of the parent are given, and their children are looked up.
 */
extern ConstraintKeys *ConstraintKeysCreate(LookupShared *shared,
											MemoryContext mcxt,
											Oid constraint, bool is_parent);

/* The constraint's OID. */
extern Oid	ConstraintKeysOid(const ConstraintKeys *keys);

/*
 * Is a column of the given rows one of those in a set, which is offset as those
 * of ExecGetUpdatedCols() are?
 */
extern bool ConstraintKeysAreAmong(const ConstraintKeys *keys,
								   const Bitmapset *columns);

/*
 * Is a row with another version of it the same for the constraint?  Both are
 * rows of the table whose rows are given.
 */
extern bool ConstraintKeysEqual(ConstraintKeys *keys, TupleTableSlot *row,
								TupleTableSlot *other);

/*
 * The server has executed the constraint's query once.  index: the only index
 * that it used; InvalidOid if it used none, or several.
 */
extern void ConstraintKeysSetIndex(ConstraintKeys *keys, Oid index);

/* The server makes its checks in the constraint's own index, with no query. */
extern void ConstraintKeysUseOwnIndex(ConstraintKeys *keys);

/*
 * Open the relations that are looked at; false if nothing can be looked up.
 * *changed is set if they are others than they were, so that all look-ups have
 * been forgotten.
 */
extern bool ConstraintKeysOpen(ConstraintKeys *keys, bool *changed);
extern void ConstraintKeysClose(ConstraintKeys *keys);

/* As a source of keys, which is open while its relations are. */
extern KeySource *ConstraintKeysSource(ConstraintKeys *keys);

#endif							/* PG_LOOKAHEAD_CONSTRAINT_KEYS_H */
