/*-------------------------------------------------------------------------
 *
 * profile_index.c
 *		What can be profiled of an index: its access method.
 *
 * An access method is called through the routine that hangs on the index in
 * the relation cache.  While a query runs, its indexes have a copy of it
 * there, with our functions in place of three members.  The invariant that
 * makes this safe: a copy is made once for each different routine, and lives
 * as long as the process; so wherever a pointer to one is left behind (a
 * process that ends in the middle of a query), it works.  The pointer that was
 * there before is put back when ExecutorRun is left, by an error or not: it is
 * valid as long as the index is open, which it is from the start to the end of
 * the query.
 *
 * So what is called outside ExecutorRun is not seen: amendscan, and the first
 * amrescan of a bitmap index scan whose keys are known, which is done while
 * the query starts, and which profile_query.c counts afterwards.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/gist_private.h"
#include "access/hash.h"
#include "access/nbtree.h"
#include "access/relscan.h"
#include "compat.h"
#include "observe/profile.h"
#include "observe/profile_internal.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* A routine with our functions in it.  Never freed. */
typedef struct ProfiledRoutine
{
	IndexAmRoutine routine;		/* first: an index points here */
	IndexAmRoutine stock;
	Size		num_killed;		/* where the scan's state counts dead entries */
	struct ProfiledRoutine *next;
} ProfiledRoutine;

/* An index that has one, and what it had before. */
typedef struct Installed
{
	Relation	index;
	const IndexAmRoutine *before;
} Installed;

static ProfiledRoutine *routines = NULL;
static Installed *installed = NULL;
static int	ninstalled = 0;
static int	max_installed = 0;

static inline const ProfiledRoutine *
routine_of(IndexScanDesc scan)
{
	return (const ProfiledRoutine *) scan->indexRelation->rd_indam;
}

/*
 * Where an access method keeps its count of entries that it knows to be dead
 * and has not yet marked on their page.
 */
#define BTREE_NUM_KILLED offsetof(BTScanOpaqueData, numKilled)
#define HASH_NUM_KILLED offsetof(HashScanOpaqueData, numKilled)
#define GIST_NUM_KILLED offsetof(GISTScanOpaqueData, numKilled)
#define NONE_KILLED 0			/* it does not mark any, or is not of core */

static inline int
num_killed(IndexScanDesc scan, Size where)
{
	return where == NONE_KILLED ? 0 :
		*(const int *) ((const char *) scan->opaque + where);
}

/* amgettuple, where it may mark dead entries or is not only counted. */
static pg_noinline bool
gettuple_in_full(IndexScanDesc scan, ScanDirection direction, Size where)
{
	bool		may_mark = where != NONE_KILLED &&
		(scan->kill_prior_tuple || num_killed(scan, where) > 0);
	int			entered = PROFILE_ENTER(PROFILE_AMGETTUPLE);
	bool		found = routine_of(scan)->stock.amgettuple(scan, direction);

	if (may_mark && lookahead_track_functions && num_killed(scan, where) == 0)
		ProfileNoteSince(PROFILE_DEAD_ITEMS);
	PROFILE_LEAVE(entered);
	return found;
}

/* Most calls come from a row that is not timed: be quick about them. */
static pg_attribute_always_inline bool
gettuple(IndexScanDesc scan, ScanDirection direction, Size where,
		 amgettuple_function stock)
{
	Profile    *profile = &lookahead_profile;

	/* the entry returned before may be dead, too, and is told now */
	if (likely(profile->state == PROFILE_COUNTING) &&
		likely(((int) scan->kill_prior_tuple |
				num_killed(scan, where)) == 0))
	{
		profile->sums[PROFILE_AMGETTUPLE].calls++;
		return stock(scan, direction);
	}
	return gettuple_in_full(scan, direction, where);
}

static bool
profiled_btgettuple(IndexScanDesc scan, ScanDirection direction)
{
	return gettuple(scan, direction, BTREE_NUM_KILLED, btgettuple);
}

static bool
profiled_hashgettuple(IndexScanDesc scan, ScanDirection direction)
{
	return gettuple(scan, direction, HASH_NUM_KILLED, hashgettuple);
}

static bool
profiled_gistgettuple(IndexScanDesc scan, ScanDirection direction)
{
	return gettuple(scan, direction, GIST_NUM_KILLED, gistgettuple);
}

static bool
profiled_amgettuple(IndexScanDesc scan, ScanDirection direction)
{
	return gettuple(scan, direction, NONE_KILLED,
					routine_of(scan)->stock.amgettuple);
}

/* Ours for each amgettuple; the last one is for all others. */
static const struct
{
	amgettuple_function stock;
	amgettuple_function profiled;
	Size		num_killed;
}			methods[] = {
	{btgettuple, profiled_btgettuple, BTREE_NUM_KILLED},
	{hashgettuple, profiled_hashgettuple, HASH_NUM_KILLED},
	{gistgettuple, profiled_gistgettuple, GIST_NUM_KILLED},
	{NULL, profiled_amgettuple, NONE_KILLED},
};

static int64
profiled_amgetbitmap(IndexScanDesc scan, TIDBitmap *bitmap)
{
	return PROFILED(PROFILE_AMGETBITMAP,
					routine_of(scan)->stock.amgetbitmap(scan, bitmap));
}

static void
profiled_amrescan(IndexScanDesc scan, ScanKey keys, int nkeys,
				  ScanKey orderbys, int norderbys)
{
	const ProfiledRoutine *routine = routine_of(scan);
	int			to_mark = num_killed(scan, routine->num_killed);
	int			entered = PROFILE_ENTER(PROFILE_AMRESCAN);

	routine->stock.amrescan(scan, keys, nkeys, orderbys, norderbys);
	if (unlikely(to_mark > 0) && lookahead_track_functions &&
		num_killed(scan, routine->num_killed) == 0)
		ProfileNoteSince(PROFILE_DEAD_ITEMS);
	PROFILE_LEAVE(entered);
}

/* The copy of a routine that is profiled, made when first needed. */
static const IndexAmRoutine *
profiled_routine(const IndexAmRoutine *stock)
{
	ProfiledRoutine *copy;

	for (copy = routines; copy != NULL; copy = copy->next)
		if (memcmp(&copy->stock, stock, sizeof(IndexAmRoutine)) == 0)
			return &copy->routine;
	copy = MemoryContextAllocZero(TopMemoryContext, sizeof(ProfiledRoutine));
	memcpy(&copy->stock, stock, sizeof(IndexAmRoutine));
	memcpy(&copy->routine, stock, sizeof(IndexAmRoutine));
	if (stock->amgettuple != NULL)
	{
		int			i = 0;

		while (methods[i].stock != NULL &&
			   methods[i].stock != stock->amgettuple)
			i++;
		copy->routine.amgettuple = methods[i].profiled;
		copy->num_killed = methods[i].num_killed;
	}
	if (stock->amgetbitmap != NULL)
		copy->routine.amgetbitmap = profiled_amgetbitmap;
	copy->routine.amrescan = profiled_amrescan;
	copy->next = routines;
	routines = copy;
	return &copy->routine;
}

static inline bool
is_profiled(const IndexAmRoutine *routine)
{
	return routine->amrescan == profiled_amrescan;
}

const IndexAmRoutine *
ProfileStockRoutine(Relation index)
{
	if (unlikely(is_profiled(index->rd_indam)))
		return &((const ProfiledRoutine *) index->rd_indam)->stock;
	return index->rd_indam;
}

void
ProfileIndexInstall(List *indexes)
{
	ListCell   *cell;

	foreach(cell, indexes)
	{
		Relation	index = lfirst(cell);
		const IndexAmRoutine *routine;

		if (is_profiled(index->rd_indam))
			continue;			/* by a query around this one, or twice in it */
		routine = profiled_routine(index->rd_indam);
		if (ninstalled == max_installed)
		{
			max_installed = Max(16, max_installed * 2);
			installed = installed == NULL ?
				MemoryContextAlloc(TopMemoryContext,
								   max_installed * sizeof(Installed)) :
				repalloc(installed, max_installed * sizeof(Installed));
		}
		installed[ninstalled].index = index;
		installed[ninstalled++].before = index->rd_indam;
		LookaheadSetRoutine(index, routine);
	}
}

int
ProfileIndexesInstalled(void)
{
	return ninstalled;
}

void
ProfileIndexUninstall(int remaining)
{
	while (ninstalled > remaining)
	{
		Installed  *last = &installed[--ninstalled];

		if (is_profiled(last->index->rd_indam))
			LookaheadSetRoutine(last->index, last->before);
	}
}
