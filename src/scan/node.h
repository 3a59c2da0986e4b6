/*-------------------------------------------------------------------------
 *
 * node.h
 *		Index scan nodes of running queries that look-ahead has taken over.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_NODE_H
#define PG_LOOKAHEAD_NODE_H

#include "executor/execdesc.h"
#include "executor/instrument.h"
#include "lib/ilist.h"
#include "nodes/execnodes.h"
#include "observe/scan_stats.h"
#include "scan/scout.h"
#include "stream/window.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

/* Values of pg_lookahead.issue_order. */
typedef enum IssueOrder
{
	ISSUE_ORDER_INDEX,
	ISSUE_ORDER_BLOCK
} IssueOrder;

/* A reason that is looked up late: that costs more than a short scan. */
#define SCAN_NO_CONCURRENCY "effective_io_concurrency is 0"

/* How a node fetches rows at the moment; see policy.c. */
typedef enum ScanMode
{
	SCAN_STOCK,					/* the server's own code runs */
	SCAN_DIRECT,				/* our loop, nothing read ahead */
	SCAN_AHEAD					/* our loop, over a window of reads */
} ScanMode;

/* Rows of one heap page whose visibility was looked up under one lock. */
#define RUN_MAX 32

typedef struct RunItem
{
	ItemPointerData tid;		/* as the index has it */
	OffsetNumber offset;		/* of the visible tuple, if there is one */
	bool		visible;
	bool		all_dead;
	HeapTupleHeader data;
	uint32		length;
} RunItem;

typedef struct Run
{
	Buffer		buffer;			/* held by the scan while n > 0 */
	int			n;
	int			next;
	RunItem		items[RUN_MAX];
} Run;

/* The known nodes of one query. */
typedef struct ScanQuery
{
	dlist_node	link;			/* in node.c's list */
	EState	   *estate;
	slist_head	nodes;
	bool		slow_reads;		/* one of the nodes has seen slow reads */
	MemoryContextCallback forget;
} ScanQuery;

/* An index scan or index-only scan of a running query. */
typedef struct ScanNode
{
	PlanState  *plan_state;
	ExecProcNodeMtd stock;		/* the server's (or another extension's) code */
	bool		index_only;
	bool		block_order;	/* pg_lookahead.issue_order is "block" */
	const char *refusal; /* why look-ahead is not for this node, or NULL */
	ScanQuery  *query;
	slist_node	link;			/* in the query's list */

	/* what bounds the rows wanted, if known; see ScanNodeRowsWanted() */
	LimitState *limit;
	bool		is_top;			/* the plan's topmost node */

	/* policy.c */
	bool	   *slow_reads;		/* of the query: reads have proved slow */
	ScanMode	mode;
	int			misses;			/* slow reads seen since not in AHEAD */
	int64	   *reads;			/* this backend's count of blocks read */
	int64		reads_seen;		/* its value when it was looked at last */
	int			fast_reads;		/* fast ones */
	int			rest;			/* reads not to be timed */
	int			rest_next;
	bool		saw_fast_reads; /* for EXPLAIN */
	int			misses_wanted;	/* to look ahead */
	BlockNumber last_block;		/* in DIRECT */
	int			lone_rows;		/* in DIRECT: runs of one row, in a row */
	int			distance;		/* blocks wanted in the window */
	int			max_distance;
	int			hits_in_row;
	bool		ending;			/* fill the window no more, and leave AHEAD */
	uint64		blocks_ahead;	/* heap blocks visited in AHEAD */
	int			idle_rows;		/* rows in AHEAD since blocks were read */
	int			reads_ahead;	/* of these, read since AHEAD began */
	int			reads_to_probe; /* when AHEAD ends for a look at reads */
	uint64		unused_before;	/* window's counters, when the scan started */
	uint64		used_before;

	/* of all pins and reads that are held for coming rows; NULL: none are */
	ResourceOwner owner;
	bool		looking;		/* ahead, right now: others may not pause it */

	/* made when first needed, in the query's memory */
	Scout	   *scout;
	Window	   *window;
	Run		   *run;
	Buffer vm_buffer; /* index-only: for looks at the visibility map */
	BlockNumber told_block;		/* told of last, of blocks to be visited */
	BlockNumber passed_block;	/* told of last, of all-visible ones */
	int vm_debt; /* map pages read whose hit is to be uncounted */

	/* for EXPLAIN */
	ScanCounters counters;
	ScanCounters past;			/* as of when the last window was freed */
	bool		finished;		/* the scan has come to its end before */
	uint64		distance_sum;	/* over counters.blocks_visited */
	int			largest_batch;	/* most blocks put in order together */
} ScanNode;

/*
 * What is remembered of the plan states executed lately, by their addresses:
 * saves most of the searches, and serves nodes that are not known (stock.c).
 */
typedef struct RecentNode
{
	PlanState  *quiet;			/* plan_state, or NULL if it is not quiet */
	int64	   *reads;			/* this backend's count of blocks read */
	int64		reads_seen;		/* its value when it was looked at last */
	ExecProcNodeMtd stock;		/* the server's code for it */
	int			rows_to_look;	/* until its block is looked at */
	int			rows_to_watch;	/* whose reads are to be timed */
	BlockNumber last_block;		/* of the row that was looked at last */
	bool		selective;		/* in STOCK, watched entry by entry */
	PlanState  *plan_state;
	ScanNode   *node;			/* NULL: it is not known */
} RecentNode;

#define RECENT_NODES 64
StaticAssertDecl(sizeof(RecentNode) == 64,
				 "a place is found by the bits of an address");
extern RecentNode lookahead_recent_nodes[RECENT_NODES];

static inline RecentNode *
ScanNodeRecent(const PlanState *plan_state)
{
	uintptr_t	mask = (RECENT_NODES - 1) * sizeof(RecentNode);

	return (RecentNode *) ((char *) lookahead_recent_nodes +
						   ((uintptr_t) plan_state & mask));
}

/* Before its next row or entry: is nothing to be looked at? */
static inline bool
ScanNodeIsQuiet(RecentNode *recent)
{
	return *recent->reads == recent->reads_seen && --recent->rows_to_look >= 0;
}

/* The same for the next entry of a node that is watched entry by entry. */
static inline bool
ScanEntryIsQuiet(const PlanState *plan_state)
{
	RecentNode *recent = ScanNodeRecent(plan_state);

	return recent->plan_state == plan_state && ScanNodeIsQuiet(recent);
}

/* What was remembered of a plan state holds no longer. */
static inline void
ScanNodeForget(const PlanState *plan_state)
{
	RecentNode *recent = ScanNodeRecent(plan_state);

	if (recent->plan_state == plan_state)
		recent->plan_state = recent->quiet = NULL;
}

/* The count of the blocks that this backend has read of its kind of table. */
static inline int64 *
ScanReadsOf(PlanState *plan_state)
{
	Relation	heap = ((ScanState *) plan_state)->ss_currentRelation;

	return RelationUsesLocalBuffers(heap) ? &pgBufferUsage.local_blks_read :
											&pgBufferUsage.shared_blks_read;
}

/*
 * Remember a plan state that is not known and has not been executed, and that
 * the server has this code for.  selective: as of ScanNodeIsSelective().
 */
static inline void
ScanNodeRemember(PlanState *plan_state, ExecProcNodeMtd stock, bool selective)
{
	RecentNode *recent = ScanNodeRecent(plan_state);
	int64	   *reads = ScanReadsOf(plan_state);

	recent->quiet = selective ? NULL : plan_state;
	recent->reads = reads;
	recent->reads_seen = *reads;
	recent->stock = stock;
	/* the first row is not looked at, as no other came before it */
	recent->rows_to_look = selective ? 1 : 2;
	recent->rows_to_watch = 0;
	recent->last_block = InvalidBlockNumber;
	recent->selective = selective;
	recent->plan_state = plan_state;
	recent->node = NULL;
}

/* A query that the executor runs, and how many rows it asks for; 0: all. */
typedef struct ScanRun
{
	const EState *estate;
	QueryDesc  *query_desc;
	uint64		row_count;
	int64		beginning;		/* see hooks.c */
} ScanRun;

/* Settings, owned by pg_lookahead.c. */
extern bool lookahead_index_scan;
extern int	lookahead_max_distance;
extern int	lookahead_issue_order;
extern int	lookahead_window;
extern bool lookahead_debug_force;

/* hooks.c: install the executor's hooks; called once per process. */
extern void ScanHooksInit(void);

/*
 * The run of a query, one of whose nodes is being executed.  NULL if it was not
 * started through our hook, or runs within too many others.
 */
extern const ScanRun *ScanRunOf(const EState *estate);

/* take.c: take over the nodes of a query that has just been started. */
extern void ScanQueryStart(QueryDesc *queryDesc);

/*
 * Make its nodes known.  is_running: ScanNodeExec() has served them so far,
 * and they are those that ScanQueryStart() has chosen.
 */
extern void ScanQueryTake(QueryDesc *queryDesc, bool is_running);

/* May the server's code visit many entries of a node for one row? */
extern bool ScanNodeIsSelective(PlanState *plan_state);

/* stock.c: the ExecProcNodeReal of the nodes that have been taken over. */
extern TupleTableSlot *ScanNodeExec(PlanState *plan_state);

/*
 * Before an entry of a selective node is fetched in STOCK, or of one that is
 * not known, and it is not quiet: see what is to be done.  Returns the node,
 * which may have left STOCK, or NULL if it is still not known.
 */
extern ScanNode *StockLookAtEntry(PlanState *plan_state, IndexScanDesc scan);

/* What runs in nodes that are not known yet; by whether they are index-only. */
extern ExecProcNodeMtd lookahead_usual_stock[2];

/* node.c: the known nodes of a query, or NULL if none is known. */
extern ScanQuery *ScanQueryFind(const EState *estate);

extern dlist_head lookahead_queries;

/* Is any query known? */
static inline bool
ScanQueryAnyKnown(void)
{
	return !dlist_is_empty(&lookahead_queries);
}

/* Make the entry of a query that has none. */
extern ScanQuery *ScanQueryMake(EState *estate);

/* Make a node known. */
extern ScanNode *ScanNodeAdd(ScanQuery *query, PlanState *plan_state);

/* Let go of a query's nodes, and account for them. */
extern void ScanQueryEnd(QueryDesc *queryDesc);

/* AheadPause() for every node of the process that is not looking ahead. */
extern void ScanQueryPauseAll(void);

/* The node of a plan state, or NULL if it is not known. */
extern ScanNode *ScanNodeSearch(PlanState *plan_state);

static inline ScanNode *
ScanNodeFor(PlanState *plan_state)
{
	RecentNode *recent = ScanNodeRecent(plan_state);

	if (likely(recent->plan_state == plan_state))
		return recent->node;
	return ScanNodeSearch(plan_state);
}

/*
 * How many more rows will be asked of the node at most, as far as its query
 * tells (LIMIT, the row count of a FETCH); PG_INT64_MAX if it does not.
 */
extern int64 ScanNodeRowsWanted(const ScanNode *node);

/* The scan descriptor of a node, or NULL if it has not started. */
static inline IndexScanDesc
ScanDescOf(const PlanState *plan_state)
{
	return IsA(plan_state, IndexScanState) ?
		((const IndexScanState *) plan_state)->iss_ScanDesc :
		((const IndexOnlyScanState *) plan_state)->ioss_ScanDesc;
}

static inline MemoryContext
ScanNodeMemory(ScanNode *node)
{
	return node->plan_state->state->es_query_cxt;
}

/* fetch.c: the loops for DIRECT and AHEAD, and for selective nodes in STOCK. */
extern TupleTableSlot *FetchRow(PlanState *plan_state);

/*
 * ahead.c: in AHEAD, the scan has stepped to its next entry; look ahead from
 * there.
 */
extern void AheadFollow(ScanNode *node, IndexScanDesc scan,
						ScanDirection direction);

/* The scan has come to its end. */
extern void AheadFinish(ScanNode *node);

/* In AHEAD: make the scan hold a heap page, from the window if it is there. */
extern void AheadVisitBlock(ScanNode *node, IndexScanDesc scan,
							BlockNumber block);

/* VM_ALL_VISIBLE() for an index-only scan, counted once. */
extern bool AheadAllVisible(ScanNode *node, Relation heap, BlockNumber block,
							Buffer *vm_buffer);

/* Give back every pin held for coming rows; the scan can go on. */
extern void AheadPause(ScanNode *node);

/* The resource owner of what is held has been released. */
extern void AheadForget(ScanNode *node);

/* Bring the node's counters up to date. */
extern void AheadCount(ScanNode *node);

/* Count, and give back everything for good. */
extern void AheadEnd(ScanNode *node);

/* policy.c */

/* In STOCK, the block of one row in so many (and one) is looked at. */
#define SAME_BLOCK_ROWS 16
/*
 * In STOCK, the reads of so many rows after a read are timed: if the page has
 * more of them in a row, that is seen by their block.
 */
#define ROWS_TO_WATCH (SAME_BLOCK_ROWS + 1)

extern void PolicyInit(ScanNode *node);
extern int	PolicyMaxDistance(const ScanNode *node, int reads);
extern int	PolicyMaxBlocks(const ScanNode *node);
/* Is the next read to be timed? */
extern bool PolicyTimesReads(const ScanNode *node);

/* read_us: how long a block's read took, in microseconds; -1: not timed */
extern void PolicyMiss(ScanNode *node, double read_us);
extern void PolicyStartDirect(ScanNode *node, BlockNumber block);
extern void PolicyLoneRow(ScanNode *node);
extern void PolicyRun(ScanNode *node);
extern void PolicyBlock(ScanNode *node, bool was_read);
extern void PolicyRow(ScanNode *node);
extern void PolicyScanAgain(ScanNode *node);

/* explain.c */
extern void ScanExplainInit(void);

#endif							/* PG_LOOKAHEAD_NODE_H */
