/*-------------------------------------------------------------------------
 *
 * routine.h
 *		Copies of access methods' routines with streamed members, and the
 *		indexes that point to them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_ROUTINE_H
#define PG_LOOKAHEAD_ROUTINE_H

#include "access/amapi.h"
#include "observe/stream_stats.h"
#include "utils/relcache.h"

/*
 * Make an open index use a copy of its routine, until its entry is dropped from
 * the relation cache.  The copy is made once in a process for each kind.
 *		user		the kind of index
 *		members		puts the streamed members into the copy
 *		returns		false, with nothing changed, if the index has a routine that
 *					is not exactly what its handler gives
 */
extern bool RoutineReplace(Relation index, StreamUser user,
						   void (*members) (IndexAmRoutine *routine));

/* The stock routine that the copy of a kind was made of; there must be one. */
extern const IndexAmRoutine *RoutineStock(StreamUser user);

#endif							/* PG_LOOKAHEAD_ROUTINE_H */
