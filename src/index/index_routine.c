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

/* The most users of one access method. */
#define MAX_USERS 4

/* A copy of a routine; without users it is the stock routine. */
typedef struct RoutineCopy
{
	IndexAmRoutine routine;
	IndexAmRoutine stock;
	const IndexMembers *users[MAX_USERS];	/* in no order; the rest is NULL */
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

/* The place of a user of a copy, or -1. */
static int
routine_place(const RoutineCopy *copy, const IndexMembers *user)
{
	for (int i = 0; i < MAX_USERS; i++)
		if (copy->users[i] == user)
			return i;
	return -1;
}

/* Has a copy these users, and no others? */
static bool
routine_has_users(const RoutineCopy *copy, const IndexMembers *const *users)
{
	int			more = 0;

	for (int i = 0; i < MAX_USERS; i++)
	{
		if (users[i] != NULL && routine_place(copy, users[i]) < 0)
			return false;
		more += (copy->users[i] != NULL) - (users[i] != NULL);
	}
	return more == 0;
}

/* Replace the members that a user wants; false if another user has one. */
static bool
routine_replace(RoutineCopy *copy, const IndexMembers *user)
{
	IndexAmRoutine *routine = &copy->routine;
	const IndexAmRoutine *stock = &copy->stock;
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

/*
 * The copy of a routine for users, which is made at the first call; NULL if two
 * of them want the same member.
 */
static RoutineCopy *
routine_for(const IndexAmRoutine *stock, const IndexMembers *const *users)
{
	RoutineCopy *copy;

	for (copy = routine_copies; copy != NULL; copy = copy->next)
		if (routine_has_users(copy, users) &&
			memcmp(&copy->stock, stock, sizeof(*stock)) == 0)
			return copy;
	copy = MemoryContextAllocZero(TopMemoryContext, sizeof(RoutineCopy));
	memcpy(&copy->stock, stock, sizeof(*stock));
	memcpy(&copy->routine, stock, sizeof(*stock));
	for (int i = 0; i < MAX_USERS; i++)
	{
		copy->users[i] = users[i];
		if (users[i] != NULL && !routine_replace(copy, users[i]))
		{
			pfree(copy);
			return NULL;
		}
	}
	copy->next = routine_copies;
	routine_copies = copy;
	return copy;
}

/* The copy without users of the routine that an index's handler gives. */
static RoutineCopy *
routine_stock_of(Relation index)
{
	static const IndexMembers *const nobody[MAX_USERS];
	IndexAmRoutine stock;

	LookaheadStockRoutine(index->rd_amhandler, &stock);
	return routine_for(&stock, nobody);
}

/* Make an index use what it uses, but with one user put in another's place. */
static bool
routine_exchange(Relation index, const RoutineCopy *copy,
				 const IndexMembers *old, const IndexMembers *new)
{
	const IndexMembers *users[MAX_USERS];
	int			place = routine_place(copy, old);
	RoutineCopy *other;

	if (place < 0)
		return false;
	memcpy(users, copy->users, sizeof(users));
	users[place] = new;
	other = routine_for(&copy->stock, users);
	if (other == NULL)
		return false;
	LookaheadSetRoutine(index, &other->routine);
	return true;
}

bool
IndexRoutineAdd(Relation index, const IndexMembers *members)
{
	const RoutineCopy *copy = routine_used_by(index);

	if (copy != NULL && routine_place(copy, members) >= 0)
		return true;
	if (copy == NULL)
	{
		copy = routine_stock_of(index);
		if (memcmp(index->rd_indam, &copy->stock, sizeof(copy->stock)) != 0)
			return false;
	}
	return routine_exchange(index, copy, NULL, members);
}

void
IndexRoutineRemove(Relation index, const IndexMembers *members)
{
	const RoutineCopy *copy = routine_used_by(index);

	if (copy != NULL)
		(void) routine_exchange(index, copy, members, NULL);
}

const IndexAmRoutine *
IndexRoutineStock(Relation index)
{
	const RoutineCopy *copy = routine_used_by(index);

	return copy != NULL ? &copy->stock : &routine_stock_of(index)->stock;
}
