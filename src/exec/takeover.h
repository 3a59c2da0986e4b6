/*-------------------------------------------------------------------------
 *
 * takeover.h
 *		Taking over nodes of the queries that the executor starts.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_TAKEOVER_H
#define PG_LOOKAHEAD_TAKEOVER_H

#include "compat.h"
#include "exec/ahead_node.h"
#include "observe/refusal.h"
#include "read/uncount.h"
#include "utils/rel.h"
#include "utils/spccache.h"

/* Serve nodes from now on; called when the library is loaded. */
extern void TakeoverRegister(const AheadMethods *methods);

/* Return the reason why a node is not served in a role although its kind is. */
extern Refusal TakeoverRefusal(PlanState *plan_state, AheadRole role);

/*
 * Tell what becomes of a node of a query that is only planned: *refusal is why
 * it is not served, as far as its plan and the settings tell.  False: nothing
 * is to be said of the node.
 */
extern bool TakeoverForesees(PlanState *plan_state, AheadRole role,
							 Refusal *refusal);

/* Why is a table not one of those of which pages are read ahead? */
extern Refusal TakeoverTableRefusal(Relation table);

/* Is a node executed by functions of the server, and none of an extension? */
extern bool TakeoverIsServersOwn(const PlanState *plan_state);

/* Install the executor's hooks; called once, when the library is loaded. */
extern void TakeoverInit(void);

/*
 * Settings that all takeovers of plan nodes share; owned by pg_lookahead.c.
 */

/* Reads ahead: -1 for as many as is useful, 0 for none. */
extern int	lookahead_max_distance;

/* Look ahead from the first row on, whether it pays or not. */
extern int	lookahead_debug_force;	/* JudgeForce */

/* How many reads may be in flight, by a tablespace's concurrency? */
static inline int
SettingsReads(int concurrency)
{
	int			reads = LookaheadReadsInFlight(concurrency);

	return lookahead_max_distance > 0 ? Min(reads, lookahead_max_distance) :
		reads;
}

/* Why may nothing at all be read ahead? */
static inline Refusal
SettingsRefusal(void)
{
	if (lookahead_max_distance == 0)
		return REFUSED_NO_DISTANCE;
	if (!LookaheadReadsAreAsync() && !LookaheadAdviceIsUseful())
		return REFUSED_DIRECT_AND_SYNCHRONOUS;
	return NOT_REFUSED;
}

/*
 * How many reads of a table or an index may be in flight; 0 if nothing may be
 * read ahead of it.  The look into the catalogs is not counted.
 */
static inline int
RelationReads(Relation relation)
{
	BufferUsage before = pgBufferUsage;
	int			concurrency =
		get_tablespace_io_concurrency(relation->rd_rel->reltablespace);

	UncountCatalogs(&before);
	return concurrency == 0 ? 0 : SettingsReads(concurrency);
}

/* Why may nothing be read ahead of a table or an index? */
static inline Refusal
ConcurrencyRefusal(Relation relation)
{
	return RelationReads(relation) == 0 ? REFUSED_NO_CONCURRENCY : NOT_REFUSED;
}

#endif							/* PG_LOOKAHEAD_TAKEOVER_H */
