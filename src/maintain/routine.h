/*-------------------------------------------------------------------------
 *
 * routine.h
 *		Which indexes can be read through streams, and making them so.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_ROUTINE_H
#define PG_LOOKAHEAD_ROUTINE_H

#include "observe/totals.h"
#include "utils/relcache.h"

/*
 * The kind of the indexes that have a certain handler function.
 *		returns	false if they are of another kind than hash, GIN and Bloom
 */
extern bool RoutineKind(Oid handler, StreamUser *user);

/*
 * Make an open index of a kind use a copy of its routine, until its entry is
 * dropped from the relation cache.  The copy is made once in a process for each
 * kind.
 *		returns	false, with nothing changed, if the index has a routine that is
 *				not exactly what its handler gives
 */
extern bool RoutineReplace(Relation index, StreamUser user);

#endif							/* PG_LOOKAHEAD_ROUTINE_H */
