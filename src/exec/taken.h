/*-------------------------------------------------------------------------
 *
 * taken.h
 *		The plan nodes of running queries that this extension executes.
 *
 * What we keep for a plan state is found by the query's EState and the node's
 * plan_node_id: a few instructions, and always exact.  It lives as long as the
 * memory of its query, after an error, too.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_TAKEN_H
#define PG_LOOKAHEAD_TAKEN_H

#include "nodes/execnodes.h"

struct ExplainState;
typedef struct Taken Taken;

/*
 * What a plan node can be to somebody who takes nodes.  It can be all at once:
 * an index scan that looks ahead, on the outer side of a nested loop that does,
 * which is on the inner side of another one.
 */
typedef enum TakenRole
{
	TAKEN_ITSELF,				/* the node that was taken */
	TAKEN_AS_OUTER,				/* the outer child of one */
	TAKEN_AS_INNER,				/* on the inner side of one */
	TAKEN_ROLES
} TakenRole;

/* One kind of takeover; each directory that drives nodes registers one. */
typedef struct Taker
{
	const bool *enabled;		/* the setting that switches the takeover */
	Size		size;			/* of the state, which begins with a Taken */

	/*
	 * Is this a node of its kind?  Then *refusal tells why the node is to be
	 * left to the server, or is NULL.  Called for each node of each query.
	 */
	bool		(*serves) (PlanState *plan_state, const char **refusal);

	/*
	 * The node has been taken: give it another ExecProcNodeReal.  All but the
	 * Taken is zero.
	 */
	void		(*begin) (Taken *taken);

	/*
	 * The node will not be executed again: take it out of all that outlives
	 * it, and account for what it did.  Called once, and must not fail, since
	 * an error would leave the nodes that come after it where they are: nothing
	 * may be allocated, waited for or looked up.  The query's memory may be
	 * going away and its relations may have been closed, so that nothing but
	 * the node's own memory may be looked at.
	 */
	void		(*end) (Taken *taken);

	/*
	 * Wait for the node's reads in flight.  Called, if at all, when all nodes
	 * of the query have been ended.  May raise an error.
	 */
	void		(*wait) (const Taken *taken);

	/*
	 * May be NULL.  Can the node's search for its next row be bounded now?
	 * Then it looks at taken->steps_left entries at most, and has_stopped is
	 * set if it has found none among them: it returns NULL, and goes on when
	 * it is executed again.
	 */
	bool		(*bound_search) (Taken *taken);

	/*
	 * EXPLAIN (ANALYZE) of a node that was executed; asked: by the option
	 * LOOKAHEAD, so that a node for which there was nothing to do is to say so.
	 */
	void		(*explain) (Taken *taken, bool asked, struct ExplainState *es);
} Taker;

/*
 * A join above a node, on its outer side.  A hash join may leave that side
 * after one row, until it has built its table; a nested loop that looks ahead
 * holds rows that have been asked for already.
 */
typedef struct JoinAbove
{
	JoinState  *join;
	struct JoinAbove *next;		/* above this one */
} JoinAbove;

/* What the row count of a portal means for the rows asked of a node. */
typedef enum PortalBound
{
	PORTAL_COUNTS_NOT,			/* a node above asks for all rows */
	PORTAL_COUNTS,				/* each row becomes at most one of the query */
	PORTAL_STOPS				/* the node may be left at any row */
} PortalBound;

/* What bounds the rows that will be asked of a node; see rows_wanted.h. */
typedef struct RowBounds
{
	/* at most */
	LimitState *limit;			/* as many as this one asks for, or NULL */
	bool		is_top;			/* as many as the query's run asks for */

	/* at least */
	bool		may_stop;		/* the node may be left at any row */
	PortalBound portal;
	LimitState *enough;			/* as many as this one asks for, or NULL */
	JoinAbove  *joins;
} RowBounds;

/* The taken nodes of one query. */
typedef struct TakenQuery
{
	EState	   *estate;
	PlanState  *top;			/* topmost node of the plan */
	uint64		row_count;		/* rows that this run asks for; 0: all */
	bool		ended;
	bool		reads_are_slow; /* one of its nodes has found that */
	bool		plan_was_searched;	/* the next one is known */
	bool		plan_sets_nothing;	/* it changes no setting while it runs */
	int64		memory;			/* bytes that its nodes have been granted */
	ExprContext *econtext;		/* for expressions of its nodes, or NULL */
	MemoryContextCallback forget;
	Taken	   *first;			/* head of the list of taken nodes */
	int			size;			/* length of "nodes" */
	Taken	 *(*nodes)[TAKEN_ROLES];	/* by plan_node_id; NULL: not taken */
	Taken	   *first_nodes[8][TAKEN_ROLES];

	/* the first nodes are kept here: short queries allocate nothing */
	Size		space_used;		/* bytes of "space" in use */
	int64		space[64];
} TakenQuery;

struct Taken
{
	PlanState  *plan_state;
	TakenQuery *query;
	const Taker *taker;
	Taken	   *next;			/* next one in the query's list */

	RowBounds	bounds;
	int			rows_held;		/* rows of its outer side that are ahead */

	/* of a search for a row that may never be asked for */
	int			steps_left;		/* 0: the search is not bounded */
	bool		has_stopped;	/* it has used them up, and found no row */
};

/* The query looked for last; never NULL. */
extern TakenQuery *lookahead_last_query;

extern TakenQuery *TakenQuerySearch(const EState *estate);

/* The nodes of a query, or NULL if none of it has been taken. */
static inline TakenQuery *
TakenQueryOf(const EState *estate)
{
	if (likely(lookahead_last_query->estate == estate))
		return lookahead_last_query;
	return TakenQuerySearch(estate);
}

/* The taken node for which a node has a role; there must be one. */
static inline Taken *
TakenBy(const PlanState *plan_state, TakenRole role)
{
	const TakenQuery *query = TakenQueryOf(plan_state->state);

	return query->nodes[plan_state->plan->plan_node_id][role];
}

/* The state of a node that has been taken. */
static inline Taken *
TakenNode(const PlanState *plan_state)
{
	Assert(TakenBy(plan_state, TAKEN_ITSELF)->plan_state == plan_state);
	return TakenBy(plan_state, TAKEN_ITSELF);
}

/* The state of a node, or NULL if it has not been taken. */
extern Taken *TakenFind(const PlanState *plan_state);

extern TakenQuery *TakenQueryMake(EState *estate);

/* Add a node; NULL if there is another one with the same plan_node_id. */
extern Taken *TakenAdd(TakenQuery *query, PlanState *plan_state,
					   const Taker *taker);

/*
 * Give a node a role for one that was taken.  False if it has that role for
 * another one already.
 */
extern bool TakenAddRole(Taken *taken, PlanState *plan_state, TakenRole role);

/*
 * End all nodes of a query, none of which will be executed again.  Raises no
 * error.
 */
extern void TakenQueryEnd(TakenQuery *query);

/* Wait for the reads in flight of a query that has been ended. */
extern void TakenQueryWait(const TakenQuery *query);

/*
 * Fetch the next row of a node that has been taken for itself, by the function
 * "fetch", if it is found among the next "steps" entries.  Returns NULL if it
 * is not, and sets *has_stopped: it is false if the node has no more rows.
 */
extern TupleTableSlot *TakenFetchNear(PlanState *plan_state,
									  ExecProcNodeMtd fetch, int steps,
									  bool *has_stopped);

/*
 * How many of the bytes that it wants a node of the query may have for what it
 * reads ahead: half of what the others have left of work_mem, or what it needs
 * at least.  Given back by subtracting them from query->memory.
 */
extern int64 TakenGrant(TakenQuery *query, int64 wanted, int64 least);

#endif							/* PG_LOOKAHEAD_TAKEN_H */
