/*-------------------------------------------------------------------------
 *
 * index_routine.c
 *		Replaces functions in the routine of an index; see index_routine.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "index/index_routine.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/*
 * A copy of a routine in which a user has replaced members.  It is made of
 * another copy; the last one has no user, and is the stock routine.
 */
typedef struct RoutineCopy
{
	IndexAmRoutine routine;
	const IndexMembers *user;
	struct RoutineCopy *below;	/* NULL if there is no user */
	struct RoutineCopy *next;
} RoutineCopy;

static RoutineCopy *routine_copies = NULL;

/* The copy that an index uses, or NULL. */
static RoutineCopy *
routine_used_by(Relation index)
{
	for (RoutineCopy *copy = routine_copies; copy != NULL; copy = copy->next)
		if (index->rd_indam == &copy->routine)
			return copy;
	return NULL;
}

static const IndexAmRoutine *
routine_stock(const RoutineCopy *copy)
{
	while (copy->below != NULL)
		copy = copy->below;
	return &copy->routine;
}

/* Replace the members that a user wants; false if another user has one. */
static bool
routine_replace(RoutineCopy *copy, const IndexMembers *user)
{
	IndexAmRoutine *routine = &copy->routine;
	const IndexAmRoutine *stock = routine_stock(copy);
	bool		alone = true;

#define REPLACE(member) \
	if (user->member != NULL) \
	{ \
		alone &= routine->member == stock->member; \
		routine->member = user->member; \
	}

	REPLACE(aminsert);
	REPLACE(ambulkdelete);
	REPLACE(amvacuumcleanup);
	REPLACE(amrescan);
	REPLACE(amgettuple);
	REPLACE(amgetbitmap);
	REPLACE(amendscan);
	return alone;
}

/* Make a copy that can be found by the functions above. */
static RoutineCopy *
routine_keep(const RoutineCopy *copy)
{
	RoutineCopy *kept = MemoryContextAlloc(TopMemoryContext, sizeof(*copy));

	memcpy(kept, copy, sizeof(*copy));
	kept->next = routine_copies;
	routine_copies = kept;
	return kept;
}

/*
 * The copy in which one more user has replaced members; NULL if another user
 * has one of them.
 */
static RoutineCopy *
routine_with(RoutineCopy *below, const IndexMembers *user)
{
	RoutineCopy made = {.routine = below->routine, .user = user,
						.below = below};

	for (RoutineCopy *copy = routine_copies; copy != NULL; copy = copy->next)
		if (copy->below == below && copy->user == user)
			return copy;
	return routine_replace(&made, user) ? routine_keep(&made) : NULL;
}

/* The copy without a user, if that is one. */
static RoutineCopy *
routine_without(RoutineCopy *copy, const IndexMembers *user)
{
	if (copy->below == NULL)
		return copy;
	if (copy->user == user)
		return copy->below;
	return routine_with(routine_without(copy->below, user), copy->user);
}

/* The copy without users of the routine that an index's handler gives. */
static RoutineCopy *
routine_stock_of(Relation index)
{
	RoutineCopy made = {.user = NULL};

	LookaheadStockRoutine(index->rd_amhandler, &made.routine);
	for (RoutineCopy *copy = routine_copies; copy != NULL; copy = copy->next)
		if (copy->below == NULL && memcmp(&copy->routine, &made.routine,
										  sizeof(made.routine)) == 0)
			return copy;
	return routine_keep(&made);
}

bool
IndexRoutineAdd(Relation index, const IndexMembers *members)
{
	RoutineCopy *copy = routine_used_by(index);

	for (const RoutineCopy *user = copy; user != NULL; user = user->below)
		if (user->user == members)
			return true;
	if (copy == NULL)
	{
		copy = routine_stock_of(index);
		if (memcmp(index->rd_indam, &copy->routine,
				   sizeof(copy->routine)) != 0)
			return false;
	}
	copy = routine_with(copy, members);
	if (copy != NULL)
		LookaheadSetRoutine(index, &copy->routine);
	return copy != NULL;
}

void
IndexRoutineRemove(Relation index, const IndexMembers *members)
{
	RoutineCopy *copy = routine_used_by(index);

	if (copy != NULL)
		LookaheadSetRoutine(index, &routine_without(copy, members)->routine);
}

const IndexAmRoutine *
IndexRoutineStock(Relation index)
{
	const RoutineCopy *copy = routine_used_by(index);

	return copy != NULL ? routine_stock(copy) :
		&routine_stock_of(index)->routine;
}
