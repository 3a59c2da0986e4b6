/*-------------------------------------------------------------------------
 *
 * index_routine.h
 *		Replaces functions in the routine of an index, in this process only.
 *
 * An index's entry in the relation cache points to its routine: the functions
 * of its access method, which are called its members.  Here that pointer is
 * changed to a copy of the routine in which some members are ours.  No catalog
 * and no other process knows of it.
 *
 * The relation cache keeps the pointer as long as the index is open, even if
 * the entry is rebuilt meanwhile.  An entry of an index that nobody has open
 * may be dropped by any invalidation, and a new one has the stock routine
 * again.  So the server's own members may come back between any two calls.  A
 * copy must outlast all entries that may point to it: it is never freed.
 *
 * For the same reason a member may be called at any time, by anyone.  Each
 * asks first whether it has something to do, and calls the stock member, which
 * IndexRoutineStock() knows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_INDEX_ROUTINE_H
#define PG_LOOKAHEAD_INDEX_ROUTINE_H

#include "access/amapi.h"
#include "utils/relcache.h"

/* Members that somebody wants replaced; NULL: the stock one stays. */
typedef struct IndexMembers
{
	aminsert_function aminsert;
	ambulkdelete_function ambulkdelete;
	amvacuumcleanup_function amvacuumcleanup;
	amrescan_function amrescan;
	amgettuple_function amgettuple;
	amgetbitmap_function amgetbitmap;
	amendscan_function amendscan;
} IndexMembers;

/*
 * Make an open index use these members, beside others that it uses already,
 * until its entry is dropped from the relation cache.  The struct is never
 * freed and never changed.  Return false, with nothing changed, if the routine
 * of the index is neither exactly what its handler gives nor one of ours, since
 * another extension has then replaced it; or if one of the members has been
 * replaced for somebody else.
 */
extern bool IndexRoutineAdd(Relation index, const IndexMembers *members);

/* Make an open index use the stock members in place of these again. */
extern void IndexRoutineRemove(Relation index, const IndexMembers *members);

/* The routine of an index as its handler gives it. */
extern const IndexAmRoutine *IndexRoutineStock(Relation index);

#endif							/* PG_LOOKAHEAD_INDEX_ROUTINE_H */
