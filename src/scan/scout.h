/*-------------------------------------------------------------------------
 *
 * scout.h
 *		Which heap blocks an index scan will ask for next.
 *
 * An index access method hands out entries one at a time, but finds them a
 * page at a time: all four of core keep the matches of the current index page
 * in their scan descriptor, behind the entry returned last.  A scout looks at
 * that list without moving the scan.  For btree it also looks into the leaf
 * pages that follow, testing the scan keys itself.
 *
 * The scan is therefore never ahead of its caller: marking dead entries,
 * marked positions, a change of direction, predicate locks, parallel scans and
 * the pin that protects an index-only scan all work as if nobody looked.
 *
 * What a scout says is a hint.  It can be wrong (a page was split, an entry
 * vanished), and then a read was started for nothing, no more.
 *
 * "Turn" is the number of entries the scan has returned; the scout gives for
 * each coming entry the turn at which it will be returned.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_SCOUT_H
#define PG_LOOKAHEAD_SCOUT_H

#include "access/relscan.h"
#include "access/sdir.h"

typedef struct Scout Scout;

/* Can the scans of this index be scouted?  True for core's own methods. */
extern bool ScoutSupportsIndex(Relation index);

/*
 * Create a scout for scans of an index.  The scan itself is given to each
 * call, since its descriptor may come and go.
 */
extern Scout *ScoutCreate(MemoryContext mcxt, Relation index);

/*
 * To be called after each entry that the scan has returned; anew: no row came
 * of those before since the scan was begun, or begun again.  Returns false if
 * the scan is not where the scout expected it to be: after a rescan, a restored
 * position, a turn, or a page split.  What was said before is then void.
 */
extern bool ScoutFollow(Scout *scout, IndexScanDesc scan, ScanDirection dir,
						bool anew);

/* The turn of the entry returned last. */
extern uint64 ScoutTurn(const Scout *scout);

/* The turn of the entry told of last. */
extern uint64 ScoutToldTurn(const Scout *scout);

/* How many reads of the index are owed: see uncount.h. */
extern int *ScoutReadsOwed(Scout *scout);

/*
 * The heap block and the turn of the next entry that the scout has not yet
 * told of.  False if nothing more is known at the moment: the scan is at its
 * end, or the next leaf page may not be looked at, or is still being read and
 * we are not to wait for it.
 */
extern bool ScoutNext(Scout *scout, IndexScanDesc scan, bool wait,
					  BlockNumber *block, uint64 *turn);

/*
 * Copy the TIDs of the entries that follow the scan's current one directly and
 * lie on the same heap block, at most "max" of them; returns their number.
 * Needs no scout.
 */
extern int	ScoutNeighbours(IndexScanDesc scan, ScanDirection dir,
							ItemPointerData *tids, int max);

/*
 * Let go of what is held, and tell again from the entry after the current one;
 * what is known of leaf pages stays known.
 */
extern void ScoutPause(Scout *scout);

/* Forget everything, and let go of what is held; the scout can go on. */
extern void ScoutReset(Scout *scout);

/* The same, where the resource owner of what was held has been released. */
extern void ScoutForget(Scout *scout);

extern void ScoutDestroy(Scout *scout);

#endif							/* PG_LOOKAHEAD_SCOUT_H */
