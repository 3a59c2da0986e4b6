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
 * Make an open index of a kind use the streamed members, until its entry is
 * dropped from the relation cache.
 *		returns	false, with nothing changed, if another extension has replaced
 *				its routine
 */
extern bool RoutineReplace(Relation index, StreamUser user);

#endif							/* PG_LOOKAHEAD_ROUTINE_H */
