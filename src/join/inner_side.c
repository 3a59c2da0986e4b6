/*-------------------------------------------------------------------------
 *
 * inner_side.c
 *		The inner side of a nested loop that looks ahead; see inner_side.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "catalog/catalog.h"
#include "compat.h"
#include "early/pruning.h"
#include "exec/takeover.h"
#include "executor/executor.h"
#include "join/inner_side.h"
#include "read/page_read.h"
#include "read/uncount.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* One of the scans of the inner side. */
typedef struct InnerScan
{
	AheadNode base;			/* leads from its plan node to this struct */
	InnerSide  *side;
	PlanState  *node;
	ExecProcNodeMtd fetch;		/* its own ExecProcNode; NULL: not replaced */
	InnerKeys  *keys;			/* NULL if it is left to the server */
	Lookup	   *lookup;
	bool		active;			/* it is in the side's "active" */
} InnerScan;

struct InnerSide
{
	InnerShared shared;
	AheadNode  *join_node;
	PlanState  *append;			/* NULL: there is one scan */
	bool		left_early;			/* it may be left at one of its children */
	PlanState **children;
	InnerScan **scans;			/* shared.nscans of them; NULL: not made */
	int			nmade;
	InnerScan **made;			/* the scans that look ahead */
	int			nactive;
	InnerScan **active;			/* those with work, in the order of rows */
	InnerParts *arrived;		/* of the row at which the join is, or NULL */
	bool		infallible;		/* no key that is known so far can fail */
	bool		executes;		/* scans are executed through this file */
	bool		prunes;
	List	   *params;			/* for pruning, besides the outer row's */
	MemoryContext mcxt;			/* memory context for pruning */
	int64		misses;
};

/* Why is a scan left to the server, as far as can be seen at once? */
static const char *
scan_refusal(PlanState *scan)
{
	Relation	table;

	if (scan == NULL || IsA(scan, AppendState) || IsA(scan, MergeAppendState))
		return "no index scan on the inner side";
	table = InnerTable(scan);
	if (table == NULL || table->rd_tableam != GetHeapamTableAmRoutine())
		return "not a heap table";
	if (IsCatalogRelation(table))
		return "system catalog";
	if (!InnerIndexIsKnown(scan))
		return "the inner index is no btree or hash index";
	if (AheadNodeFind(scan) == NULL &&
		!TakeoverIsServersOwn(scan->ExecProcNodeReal))
		return "executed by another extension";
	return NULL;
}

/* The node that returns the rows of the inner side; NULL if not known. */
static PlanState *
top_of(NestLoopState *join)
{
	return InnerIndexScan(innerPlanState(join));
}

/* Is this a bitmap heap scan that takes its bitmap from several indexes? */
static bool
has_bitmap_of_several(NestLoopState *join)
{
	PlanState  *node = innerPlanState(join);

	while (node != NULL && IsA(node, MemoizeState))
		node = outerPlanState(node);
	return node != NULL && IsA(node, BitmapHeapScanState);
}

bool
InnerSideIsAppend(NestLoopState *join)
{
	PlanState  *top = top_of(join);

	return top != NULL &&
		(IsA(top, AppendState) || IsA(top, MergeAppendState));
}

PlanState *
InnerSideFirstScan(NestLoopState *join, const char **refusal)
{
	PlanState  *scan = top_of(join);
	PlanState **children;
	int			n;

	if (scan == NULL && has_bitmap_of_several(join))
		*refusal = "the inner bitmap is made of several indexes";
	else
		*refusal = scan_refusal(scan);
	if (scan == NULL || *refusal == NULL)
		return scan;
	n = AppendChildren(scan, &children);
	for (int i = 0; i < n; i++)
	{
		scan = InnerIndexScan(children[i]);
		*refusal = scan_refusal(scan);
		if (*refusal == NULL)
			return scan;
	}
	return NULL;
}

/* Execute one of the scans, and account for what was read ahead for it. */
static TupleTableSlot *
next_row(PlanState *node)
{
	InnerScan  *scan = (InnerScan *) AheadNodeBy(node, AHEAD_AS_INNER);
	InnerSide  *side = scan->side;
	int64		misses;
	TupleTableSlot *slot;

	misses = side->append == NULL ? 0 : InnerMisses(node);
	LookupCountBegin(scan->lookup);
	slot = scan->fetch(node);
	LookupCountEnd(scan->lookup);
	if (side->append != NULL)
		side->misses += InnerMisses(node) - misses;
	return slot;
}

/* A scan that could not be given back is still executed by next_row(). */
static void
take_scan(InnerScan *scan)
{
	if (scan->fetch != NULL)
		return;
	scan->fetch = scan->node->ExecProcNodeReal;
	ExecSetExecProcNode(scan->node, next_row);
}

/* Let a scan be executed as it was before take_scan(). */
static void
give_scan_back(InnerScan *scan)
{
	if (scan->fetch == NULL || scan->node->ExecProcNodeReal != next_row)
		return;
	ExecSetExecProcNode(scan->node, scan->fetch);
	scan->fetch = NULL;
}

/* Create the state for looking ahead in a scan; return a refusal, or NULL. */
static const char *
make_scan(InnerSide *side, int i)
{
	EState	   *estate = side->shared.join->js.ps.state;
	InnerScan  *scan = MemoryContextAllocZero(estate->es_query_cxt,
											  sizeof(InnerScan));
	int64		hits = pgBufferUsage.shared_blks_hit;
	bool		infallible = true;
	const char *refusal;

	side->scans[i] = scan;
	scan->base = *side->join_node;
	scan->side = side;
	scan->node = InnerIndexScan(side->children[i]);
	refusal = scan_refusal(scan->node);
	if (refusal == NULL)
		scan->keys = InnerKeysCreate(&side->shared, side->children[i],
									 &infallible, &refusal);
	if (refusal == NULL &&
		!AheadNodeAddRole(&scan->base, scan->node, AHEAD_AS_INNER))
	{
		scan->keys = NULL;
		refusal = "executed by another extension";
	}

	/* do not count lookups in the catalogs */
	pgBufferUsage.shared_blks_hit -= pgBufferUsage.shared_blks_hit - hits;
	if (scan->keys == NULL)
		return refusal;
	scan->lookup = InnerKeysLookup(scan->keys);
	if (side->executes)
		take_scan(scan);
	side->infallible &= infallible;
	side->made[side->nmade++] = scan;
	return NULL;
}

InnerSide *
InnerSideCreate(AheadNode *base, bool settings_stay, bool *infallible,
				int max_rows, int max_reads, const char **refusal)
{
	NestLoopState *join = (NestLoopState *) base->plan_state;
	EState	   *estate = join->js.ps.state;
	MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);
	InnerSide  *side = palloc0_object(InnerSide);
	int			n = 1;

	*refusal = NULL;
	side->join_node = base;
	side->infallible = *infallible;
	side->children = palloc_object(PlanState *);
	*side->children = innerPlanState(join);
	if (InnerSideIsAppend(join))
	{
		side->append = top_of(join);
		n = AppendChildren(side->append, &side->children);
		side->prunes = PruningIsDone(side->append);
		side->mcxt = AllocSetContextCreate(estate->es_query_cxt,
										   "look-ahead pruning",
										   ALLOCSET_SMALL_SIZES);
	}
	side->scans = palloc0_array(InnerScan *, n);
	side->made = palloc_array(InnerScan *, n);
	side->active = palloc_array(InnerScan *, n);
	if (base->query->econtext == NULL)
		base->query->econtext = CreateExprContext(estate);
	side->shared = (InnerShared) {.lookups = {.max_keys = max_rows,
											  .max_reads = max_reads,
											  .nlookups = n},
								  .join = join,
								  .values = OuterValuesCreate(join),
								  .econtext = base->query->econtext,
								  .settings_stay = settings_stay};

	side->left_early = side->append != NULL && IsA(side->append, AppendState) &&
		InnerRowsAsked(join, side->children[0]) < PG_INT32_MAX;
	if (side->prunes &&
		!PruningIsHarmless(side->append, settings_stay, &side->infallible,
						   &side->params))
		*refusal = "a partition is found by no plain value";
	else
		for (int i = 0; i < n && side->nmade == 0; i++)
			*refusal = make_scan(side, i);
	*infallible = side->infallible;
	side->shared.infallible = side->infallible;
	(void) OuterValuesRemove(side->shared.values, &side->params);
	MemoryContextSwitchTo(old);
	return *refusal == NULL ? side : NULL;
}

void
InnerSideTake(InnerSide *side)
{
	if (side->executes)
		return;
	side->executes = true;
	for (int i = 0; i < side->nmade; i++)
		take_scan(side->made[i]);
}

void
InnerSideGiveBack(InnerSide *side)
{
	if (!side->executes)
		return;
	side->executes = false;
	for (int i = 0; i < side->nmade; i++)
		give_scan_back(side->made[i]);
}

int64
InnerSideMisses(const InnerSide *side)
{
	return side->misses;
}

void
InnerSideBegin(InnerSide *side, InnerParts *parts)
{
	parts->n = -1;
	if (side->append != NULL)
		return;
	parts->n = 1;
	parts->parts = &parts->only;
	parts->only.scan = 0;
	LookupBegin(side->scans[0]->lookup, &parts->only.key);
}

int
InnerSideReads(const InnerParts *parts)
{
	int			reads = 0;

	for (int i = 0; i < parts->n; i++)
		reads += parts->parts[i].key.reads;
	return reads;
}

/* The scan that does a part of what is done for a row. */
static inline Lookup *
lookup_of(const InnerSide *side, const InnerPart *part)
{
	return side->scans[part->scan]->lookup;
}

void
InnerSidePass(InnerSide *side)
{
	for (int i = 0; side->arrived != NULL && i < side->arrived->n; i++)
		LookupPass(lookup_of(side, &side->arrived->parts[i]));
	side->arrived = NULL;
}

void
InnerSideArrive(InnerSide *side, InnerParts *parts)
{
	for (int i = 0; i < parts->n; i++)
		LookupArrive(lookup_of(side, &parts->parts[i]),
						 &parts->parts[i].key);
	side->arrived = parts;
}

void
InnerSideForget(InnerSide *side, InnerParts *parts)
{
	for (int i = 0; i < parts->n; i++)
		LookupForget(lookup_of(side, &parts->parts[i]),
						 &parts->parts[i].key);
}

int
InnerSideLeftOver(const InnerSide *side)
{
	int			left = 0;

	for (int i = 0; side->arrived != NULL && i < side->arrived->n; i++)
		left += LookupLeftOver(lookup_of(side, &side->arrived->parts[i]));
	return left;
}

/* The children that a row selects, allocated in side->mcxt. */
static Bitmapset *
children_of(InnerSide *side, TupleTableSlot *slot)
{
	OuterValues *values = side->shared.values;
	Bitmapset  *children = NULL;

	if (!side->prunes)
		return bms_add_range(NULL, 0, Min(side->shared.lookups.nlookups,
										  MAX_SCANS_OF_ROW) - 1);
	if (!OuterValuesKnow(values, side->params))
		return NULL;
	OuterValuesSet(values, slot);
	if (!OuterValuesAreToasted(values))
		children = PruningSelect(side->append);
	OuterValuesRestore(values);
	return children;
}

/* Select the scans for a row. */
static void
select_scans(InnerSide *side, InnerParts *parts, TupleTableSlot *slot)
{
	MemoryContext old;
	Bitmapset  *children;
	int			i = -1;

	MemoryContextReset(side->mcxt);
	old = MemoryContextSwitchTo(side->mcxt);
	children = children_of(side, slot);
	MemoryContextSwitchTo(old);
	parts->n = 0;
	parts->parts = &parts->only;
	if (bms_membership(children) == BMS_MULTIPLE)
	{
		if (parts->several == NULL)
			parts->several = MemoryContextAlloc(
				side->shared.join->js.ps.state->es_query_cxt,
				MAX_SCANS_OF_ROW * sizeof(InnerPart));
		parts->parts = parts->several;
	}
	while ((i = bms_next_member(children, i)) >= 0 &&
		   parts->n < MAX_SCANS_OF_ROW)
	{
		InnerPart  *part = &parts->parts[parts->n];

		if (side->scans[i] == NULL)
			(void) make_scan(side, i);
		if (side->scans[i]->keys == NULL)
			continue;
		part->scan = i;
		LookupBegin(side->scans[i]->lookup, &part->key);
		parts->n++;
		if (side->left_early)
			break;				/* the next one may not be come to */
	}
}

void
InnerSideAdvance(InnerSide *side, InnerParts *parts, TupleTableSlot *slot,
				 bool wait)
{
	if (parts->n < 0)
		select_scans(side, parts, slot);
	for (int i = 0; i < parts->n; i++)
	{
		InnerPart  *part = &parts->parts[i];
		InnerScan  *scan = side->scans[part->scan];

		if (part->key.stage == LOOKUP_DONE)
			continue;
		if (!scan->active)
			side->active[side->nactive++] = scan;
		scan->active = true;
		InnerKeysAdvance(scan->keys, &part->key, slot, wait);
	}
}

void
InnerSideRead(InnerSide *side)
{
	int			n = 0;

	/* what is needed first is read first, if not all can be in flight */
	for (int i = 0; i < side->nactive; i++)
	{
		InnerScan  *scan = side->active[i];

		LookupRead(scan->lookup);
		scan->active = LookupIsBehind(scan->lookup);
		if (scan->active)
			side->active[n++] = scan;
	}
	side->nactive = n;
}

bool
InnerSideIsBehind(InnerSide *side)
{
	return side->nactive > 0;
}

bool
InnerSideHasRoom(InnerSide *side)
{
	const LookupShared *shared = &side->shared.lookups;
	int			most = shared->max_reads - (shared->max_reads + 3) / 4;

	if (PageReadsInFlight(shared) <= most)
		return true;

	/* otherwise, nothing more would be started until all of them are used up */
	return InnerSideIsBehind(side) && LookaheadReadsEndUnseen() &&
		PageReadsWait(shared, false) && PageReadsInFlight(shared) <= most;
}

void
InnerSideNeighbours(InnerSide *side, int *blocks, int *neighbours)
{
	bool		kernel = LookaheadAdviceIsUseful();

	LookupShared *shared = &side->shared.lookups;

	*blocks = kernel ? shared->blocks : 0;
	*neighbours = kernel ? shared->neighbours : 0;
	shared->blocks = shared->neighbours = 0;
}

const LookupCounters *
InnerSideCounters(const InnerSide *side)
{
	return &side->shared.lookups.counters;
}

void
InnerSideWait(InnerSide *side)
{
	(void) PageReadsWait(&side->shared.lookups, true);
}
