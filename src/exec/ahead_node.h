/*-------------------------------------------------------------------------
 *
 * ahead_node.h
 *		The plan nodes of running queries that this extension executes.
 *
 * What we keep for a plan state is found by the query's EState and the node's
 * plan_node_id: a few instructions, and always exact.  It lives as long as the
 * memory of its query, after an error, too.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_AHEAD_NODE_H
#define PG_LOOKAHEAD_AHEAD_NODE_H

#include "nodes/execnodes.h"
#include "observe/refusal.h"

typedef struct AheadNode AheadNode;

/* A figure that EXPLAIN shows of a node. */
typedef struct AheadFigure
{
	const char *label;			/* in text; NULL: only a property */
	const char *property;		/* name of the property, after "Look-Ahead" */
	double		value;
	int			decimals;
	const char *word;			/* shown instead of the value, or NULL */
} AheadFigure;

/* What EXPLAIN shows of a node: figures, or why nothing was read ahead. */
typedef struct AheadReport
{
	const char *subject;		/* NULL: the node itself */
	Refusal		reason;
	Refusal		row_by_row;		/* why no rows were known ahead */
	int			n;
	AheadFigure figures[32];
	List	   *indexes;		/* names of those in which keys were looked up,
								 * as String nodes; or NIL */
} AheadReport;

/*
 * What a plan node can be to somebody who takes nodes.  It can be all at once:
 * an index scan that looks ahead, on the outer side of a nested loop that does,
 * which is on the inner side of another one.
 */
typedef enum AheadRole
{
	AHEAD_ITSELF,				/* the node that was taken */
	AHEAD_AS_OUTER,				/* the outer child of one */
	AHEAD_AS_INNER,				/* on the inner side of one */
	AHEAD_AS_TIMED,				/* its inner child, whose time is measured */
	AHEAD_FOR_VALUES,			/* the scan whose TOASTed values are fetched */
	AHEAD_FOR_KEYS,				/* what writes rows that have foreign keys */
	AHEAD_AS_WRITTEN,			/* its child, which returns the rows */
	AHEAD_FOR_SUBPLANS,			/* a node that was taken for its subplans */
	AHEAD_ROLES
} AheadRole;

/* One kind of takeover; each directory that drives nodes registers one. */
typedef struct AheadMethods
{
	const bool *enabled;		/* the setting that switches the takeover */
	Size		size;			/* of the state, beginning with AheadNode */
	AheadRole	role;			/* for which a node is taken */

	/*
	 * Is this a node of its kind?  Then *refusal, which was NOT_REFUSED, tells
	 * if the node is to be left to the server.  Called for each node of each
	 * query.
	 */
	bool		(*serves) (PlanState *plan_state, Refusal *refusal);

	/*
	 * May be NULL.  Asked by EXPLAIN of a node that is served, in a query that
	 * is only planned: *refusal, which was NOT_REFUSED, tells if nothing will
	 * be read ahead for it.  False: nothing is to be said of the node.
	 */
	bool		(*foresee) (PlanState *plan_state, Refusal *refusal);

	/*
	 * The node has been taken for a role: if it is AHEAD_ITSELF, give it
	 * another ExecProcNodeReal.  All but the AheadNode is zero.
	 */
	void		(*begin) (AheadNode *node);

	/*
	 * The node will not be executed again: take it out of all that outlives
	 * it, and account for what it did.  Called once, and must not fail, since
	 * an error would leave the nodes that come after it where they are: nothing
	 * may be allocated, waited for or looked up.  The query's memory may be
	 * going away, child contexts first, and its relations may have been closed:
	 * only what the node has in es_query_cxt itself may be looked at.
	 */
	void		(*end) (AheadNode *node);

	/*
	 * May be NULL.  Can the node's search for its next row be bounded now?
	 * Then it looks at node->steps_left entries at most, and at none where that
	 * might have an effect or fail, with the columns of node->read being read;
	 * has_stopped is set if it has found none among them: it returns NULL, and
	 * goes on when it is executed again.
	 */
	bool		(*bound_search) (AheadNode *node);

	/*
	 * Report what was done for a node that was executed.  May be NULL, or
	 * report nothing.
	 */
	void		(*report) (AheadNode *node, AheadReport *report);
} AheadMethods;

/*
 * A node above a node.  A hash join may leave its outer side after one row,
 * until it has built its table; a node that looks ahead holds rows that have
 * been asked for already.
 */
typedef struct HolderAbove
{
	PlanState  *holder;
	struct HolderAbove *next;	/* above this one */
} HolderAbove;

/* What the row count of a portal means for the rows asked of a node. */
typedef enum PortalBound
{
	PORTAL_COUNTS_NOT,			/* a node above asks for all rows */
	PORTAL_COUNTS,				/* each row becomes at most one of the query */
	PORTAL_STOPS				/* the node may be left at any row */
} PortalBound;

/* What bounds the rows that will be asked of a node. */
typedef struct RowBounds
{
	/* at most */
	LimitState *limit;			/* as many as this one asks for, or NULL */
	bool		is_top;			/* as many as the query's run asks for */

	/* at least */
	bool		may_stop;		/* the node may be left at any row */
	PortalBound portal;
	LimitState *enough;			/* as many as this one asks for, or NULL */
	HolderAbove *holders;

	bool		restores;		/* the node may be set back to an earlier row */
} RowBounds;

/* The taken nodes of one query. */
typedef struct AheadQuery
{
	EState	   *estate;
	PlanState  *top;			/* topmost node of the plan */
	uint64		reads_before;	/* of this process, when it was begun */
	uint64		row_count;		/* rows that this run asks for; 0: all */
	bool		ended;
	bool		reads_are_slow; /* one of its nodes has found that */
	bool		plan_was_searched;	/* the next one is known */
	bool		plan_sets_nothing;	/* it changes no setting while it runs */
	int64		memory;			/* bytes that its nodes have been granted */
	ExprContext *econtext;		/* for expressions of its nodes, or NULL */
	MemoryContextCallback forget;
	AheadNode  *first;			/* head of the list of taken nodes */
	int			size;			/* length of "nodes" */
	AheadNode *(*nodes)[AHEAD_ROLES];	/* by plan_node_id; NULL: not taken */
	AheadNode  *first_nodes[8][AHEAD_ROLES];

	/* the first nodes are kept here: short queries allocate nothing */
	Size		space_used;		/* bytes of "space" in use */
	int64		space[128];
} AheadQuery;

struct AheadNode
{
	PlanState  *plan_state;
	AheadQuery *query;
	const AheadMethods *methods;
	AheadNode  *next;			/* next one in the query's list */

	RowBounds	bounds;
	int			rows_held;		/* rows of its outer side that are ahead */

	/* of a search for a row that may never be asked for */
	int			steps_left;		/* 0: the search is not bounded */
	const Bitmapset *read;		/* columns whose values are then read */
	bool		has_stopped;	/* it has used them up, and found no row */
};

/* The query looked for last; never NULL. */
extern AheadQuery *lookahead_last_query;

extern AheadQuery *AheadQuerySearch(const EState *estate);

/* The nodes of a query, or NULL if none of it has been taken. */
static inline AheadQuery *
AheadQueryOf(const EState *estate)
{
	if (likely(lookahead_last_query->estate == estate))
		return lookahead_last_query;
	return AheadQuerySearch(estate);
}

/* The taken node for which a node has a role; there must be one. */
static inline AheadNode *
AheadNodeBy(const PlanState *plan_state, AheadRole role)
{
	const AheadQuery *query = AheadQueryOf(plan_state->state);

	return query->nodes[plan_state->plan->plan_node_id][role];
}

/* What was taken for a node in a role, or NULL. */
extern AheadNode *AheadNodeFindBy(const PlanState *plan_state, AheadRole role);

/* The state of a node, or NULL if it has not been taken for itself. */
static inline AheadNode *
AheadNodeFind(const PlanState *plan_state)
{
	return AheadNodeFindBy(plan_state, AHEAD_ITSELF);
}

/* Has a node a role for one that was taken?  Is it executed by us, in any? */
extern bool AheadNodeHasRole(const PlanState *plan_state, AheadRole role);
extern bool AheadNodeIsOurs(const PlanState *plan_state);

extern AheadQuery *AheadQueryMake(EState *estate);

/*
 * Add a node for the role of its methods; NULL if there is another one with the
 * same plan_node_id.
 */
extern AheadNode *AheadNodeAdd(AheadQuery *query, PlanState *plan_state,
					   const AheadMethods *methods);

/*
 * Give a node a role for one that was taken.  False if it has that role for
 * another one already.
 */
extern bool AheadNodeAddRole(AheadNode *node, PlanState *plan_state,
							 AheadRole role);

/*
 * End all nodes of a query, none of which will be executed again.  Raises no
 * error.
 */
extern void AheadQueryEnd(AheadQuery *query);

/*
 * Wait for the reads in flight that were started since a query was begun, which
 * has been ended: for its own, and those of others that ran meanwhile.
 */
extern void AheadQueryWait(const AheadQuery *query);

/*
 * Fetch the next row of a node that has been taken for itself, by the function
 * "fetch", which reads some columns of its table, if it is found among the next
 * "steps" entries.  Returns NULL if it is not, and sets *has_stopped: it is
 * false if the node has no more rows.
 */
extern TupleTableSlot *AheadFetchNear(PlanState *plan_state,
									  ExecProcNodeMtd fetch, int steps,
									  const Bitmapset *read,
									  bool *has_stopped);

/*
 * How many of the bytes that it wants a node of the query may have for what it
 * reads ahead: half of what the others have left of work_mem, or what it needs
 * at least.  Given back by subtracting them from query->memory.
 */
extern int64 AheadGrant(AheadQuery *query, int64 wanted, int64 least);

/*
 * rows_wanted.c: how many more rows will be asked of a taken node: at most,
 * so that no more is read ahead, and at least, so that the query's own work
 * may be done earlier for these.
 */

/* Turn the bounds of a node into those of its (outer) child. */
extern void RowBoundsBelow(RowBounds *bounds, PlanState *plan_state);

/* Turn these further into the bounds of one of several children. */
extern void RowBoundsOfChild(RowBounds *bounds, PlanState *parent,
							 PlanState *child);

/*
 * The bounds of a subplan other than a CTE's: it runs to its end, or until its
 * outcome is known.
 */
extern RowBounds RowBoundsOfSubPlan(const SubPlan *subplan);

/*
 * How many more rows will be asked of the node at most?  PG_INT64_MAX if the
 * query does not tell.
 */
extern int64 RowsWanted(const AheadNode *base);

/*
 * How many more rows will certainly be asked of the node, or up to its end,
 * unless the query fails?  PG_INT64_MAX: all of them.
 */
extern int64 RowsCertain(const AheadNode *base);

/*
 * explain.c: what EXPLAIN says of nodes that are served.
 *
 * On servers that let an extension add to a node (18 and later), a node that
 * was executed has a line beside those of BUFFERS if look-ahead had something
 * to do for it.  EXPLAIN (ANALYZE, LOOKAHEAD) gives each node of a kind that is
 * served a line, and the reason where nothing was read ahead.
 *
 * Without ANALYZE the option says which nodes can look ahead, and why others of
 * these kinds will not, as far as the plan, the catalogs and the settings tell.
 * The executor opens no index for such an EXPLAIN, so we do.
 *
 * In text the figures of a report stand in the line, as far as they have a
 * label; a label that begins with a space begins a group.  In other formats
 * each is a property.
 */

/* Install the hook; called once, when the library is loaded. */
extern void AheadExplainInit(void);

/* Add a number, or a mean, to the figures of a report. */
static inline void
AheadReportAdd(AheadReport *report, const char *label, const char *property,
			   double value)
{
	Assert(report->n < lengthof(report->figures));
	report->figures[report->n++] =
		(AheadFigure) {.label = label, .property = property, .value = value};
}

static inline void
AheadReportMean(AheadReport *report, const char *label, const char *property,
				double value)
{
	AheadReportAdd(report, label, property, value);
	report->figures[report->n - 1].decimals = 1;
}

#endif							/* PG_LOOKAHEAD_AHEAD_NODE_H */
