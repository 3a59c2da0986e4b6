/*-------------------------------------------------------------------------
 *
 * replace.h
 *		Which indexes can be read through streams, and making them so.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_REPLACE_H
#define PG_LOOKAHEAD_REPLACE_H

#include "observe/stream_stats.h"
#include "utils/relcache.h"

/*
 * The kind of the indexes that have a certain handler function.
 *		returns	false if they are of another kind than hash, GIN and Bloom
 */
extern bool ReplaceKnows(Oid handler, StreamUser *user);

/* RoutineReplace() for an open index of a kind. */
extern bool ReplaceRoutine(Relation index, StreamUser user);

#endif							/* PG_LOOKAHEAD_REPLACE_H */
