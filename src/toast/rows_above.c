/*-------------------------------------------------------------------------
 *
 * rows_above.c
 *		The rows of a node above scans, of which some are fetched ahead, and
 *		their TOAST pointers; see toast_private.h.
 *
 * A pointer is kept for a while after its row has been handed out: rows of a
 * cursor are fetched a portion at a time, and their values later.
 *
 *		first		   next			   tail		of the ring of pointers
 *		  |  returned	 |	 not yet	 |
 *
 * Invariants:
 * - The rows ahead are certain and the node is harmless, or they are known and
 *	 it is infallible (early_plan.h).  None is fetched that a LIMIT, or the
 *	 present portion of a cursor, is known not to need.
 * - The node stands on the last row ahead.  Before it is executed backwards, it
 *	 is set back to the row that was handed out last.
 * - While the node is executed, values are fetched by the nodes below it, and
 *	 none of its rows is taken for theirs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "early/early_plan.h"
#include "early/rows_ahead.h"
#include "exec/ahead_node.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "read/uncount.h"
#include "toast/toast_private.h"

/* The pointers that are kept; a power of two. */
#define KEPT 1024

/* The most rows ahead, and bytes of memory wanted for each of them. */
#define MOST_ROWS 128
#define BYTES_PER_ROW BLCKSZ
#define LEAST_BYTES (4 * BLCKSZ)

/* The most rows ahead before the first one has been handed out. */
#define FIRST_ROWS 2

struct RowsAbove
{
	AheadNode  *node;
	ExecProcNodeMtd fetch;		/* the node's own function */
	Oid			toast_table;	/* InvalidOid: none is served yet */

	bool		opened;
	bool		harmless;		/* rows that are certain may be fetched */
	bool		infallible;		/* others as well */
	List	   *params;			/* that have to be known for it */
	RowsAhead  *ahead;			/* NULL: none has been since the last end */
	int64		granted;		/* bytes of memory for them */
	bool		watching;		/* rescans */
	bool		begun_again;
	bool		running;		/* the node is being executed */
	bool		ended;			/* after the rows ahead there is no other */
	int64		handed_out;

	uint64		turn;			/* of the row that was fetched last */
	uint64		first;
	uint64		next;
	uint64		tail;
	ToastPointer pointers[KEPT];
};

bool
RowsAboveKnow(PlanState *plan_state)
{
	TupleDesc	desc = plan_state->ps_ResultTupleDesc;

	switch (nodeTag(plan_state))
	{
		case T_SortState:
		case T_IncrementalSortState:
		case T_GatherState:
		case T_GatherMergeState:
		case T_HashJoinState:
		case T_MergeJoinState:
			for (int i = 0; i < desc->natts; i++)
				if (TupleDescAttr(desc, i)->attlen == -1)
					return true;
			return false;
		default:
			return false;
	}
}

RowsAbove *
RowsAboveCreate(AheadNode *node, ExecProcNodeMtd fetch)
{
	RowsAbove  *rows = MemoryContextAlloc(node->query->estate->es_query_cxt,
										  sizeof(RowsAbove));

	memset(rows, 0, offsetof(RowsAbove, pointers));
	rows->node = node;
	rows->fetch = fetch;
	return rows;
}

/* May rows be ahead, as far as the plan tells? */
static inline bool
rows_above_may_be_ahead(const RowsAbove *rows)
{
	return rows->harmless || rows->infallible;
}

/* Find out whether rows may be ahead. */
static void
rows_above_open(RowsAbove *rows)
{
	const RowBounds *bounds = &rows->node->bounds;
	AheadQuery *query = rows->node->query;
	PlanState  *plan_state = rows->node->plan_state;
	BufferUsage before = pgBufferUsage;
	MemoryContext old = MemoryContextSwitchTo(query->estate->es_query_cxt);

	rows->opened = true;
	rows->harmless = !bounds->restores && !bounds->may_stop &&
		HarmlessPlanRefusal(plan_state, false, SettingsStay(query),
							&rows->params) == NOT_REFUSED;
	rows->infallible =
		!bounds->restores && ReturnsInfallibly(plan_state, false);
	if (rows_above_may_be_ahead(rows) && plan_state->ps_ExprContext == NULL)
		ExecAssignExprContext(query->estate, plan_state);
	MemoryContextSwitchTo(old);
	UncountCatalogs(&before);
}

static inline int
rows_above_size(const RowsAbove *rows)
{
	return rows->ahead == NULL ? 0 : RowsAheadSize(rows->ahead);
}

static void
rows_above_open_ring(RowsAbove *rows)
{
	AheadQuery *query = rows->node->query;

	rows->granted =
		AheadGrant(query, MOST_ROWS * BYTES_PER_ROW, LEAST_BYTES);
	rows->ahead = RowsAheadCreate(query->estate->es_query_cxt, MOST_ROWS,
								  rows->granted, 0);
}

/* All rows have been handed out: leave the memory to other nodes. */
static void
rows_above_close_ring(RowsAbove *rows)
{
	if (rows->ahead == NULL)
		return;
	RowsAheadDestroy(rows->ahead);
	rows->ahead = NULL;
	rows->node->query->memory -= rows->granted;
}

/* Called when the node is begun again. */
static void
rows_above_note_rescan(Datum arg)
{
	RowsAbove  *rows = (RowsAbove *) DatumGetPointer(arg);

	rows->watching = false;
	rows->begun_again = true;
}

/* Let go of the rows ahead, and of all pointers. */
static void
rows_above_forget(RowsAbove *rows)
{
	if (rows->ahead != NULL)
		RowsAheadForget(rows->ahead);
	rows->first = rows->next = rows->tail;
	rows->ended = false;
}

/* Execute the node, and note the pointers of its row. */
static TupleTableSlot *
rows_above_execute_node(RowsAbove *rows)
{
	ToastPointer pointers[ROW_POINTERS];
	TupleTableSlot *slot;
	int			n;

	rows->node->rows_held = rows_above_size(rows);
	rows->running = true;
	slot = rows->fetch(rows->node->plan_state);
	rows->running = false;
	if (TupIsNull(slot))
		return NULL;
	n = ToastPointersOfSlot(slot, ++rows->turn, pointers);
	for (int i = 0; i < n; i++)
		rows->pointers[rows->tail++ % KEPT] = pointers[i];
	if (rows->tail > KEPT)
		rows->first = Max(rows->first, rows->tail - KEPT);
	rows->next = Max(rows->next, rows->first);
	return slot;
}

/*
 * Set the node back to the row that was handed out last.  If it has come to its
 * end, the last row is the first one that it returns.
 */
static void
rows_above_set_back(RowsAbove *rows)
{
	int			n = rows_above_size(rows) + rows->ended;

	rows_above_forget(rows);
	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		(void) rows->fetch(rows->node->plan_state);
	}
}

/* May another row be fetched, when this number is ahead? */
static bool
rows_above_may_fetch(RowsAbove *rows, int size)
{
	PlanState  *plan_state = rows->node->plan_state;

	if (size == 0)
		return true;
	if (!RowsAheadHasRoom(rows->ahead) || size >= RowsWanted(rows->node))
		return false;
	if (rows->infallible && NextRowIsKnown(plan_state, NULL))
		return true;

	/* to find a row may take long, but not if it has been sorted */
	return rows->harmless && size < RowsCertain(rows->node) &&
		(IsA(plan_state, SortState) || size < rows->handed_out + FIRST_ROWS) &&
		ParamsAreKnown(plan_state->state, rows->params);
}

/* Fetch rows ahead. */
static void
rows_above_fill(RowsAbove *rows, int wanted)
{
	while (!rows->ended && rows->tail < rows->next + wanted &&
		   rows_above_may_fetch(rows, rows_above_size(rows)))
	{
		TupleTableSlot *slot = rows_above_execute_node(rows);

		CHECK_FOR_INTERRUPTS();
		rows->ended = slot == NULL;
		if (slot == NULL)
			break;
		if (rows->ahead == NULL)
			rows_above_open_ring(rows);
		(void) RowsAheadAdd(rows->ahead, slot);
	}
}

TupleTableSlot *
RowsAboveFetch(RowsAbove *rows, int wanted)
{
	PlanState  *plan_state = rows->node->plan_state;
	TupleTableSlot *slot;

	if (!rows->opened)
		rows_above_open(rows);
	if (!rows_above_may_be_ahead(rows))
		return rows->fetch(plan_state);
	if (rows->begun_again)
	{
		rows_above_forget(rows);
		rows->handed_out = 0;
		rows->begun_again = false;
	}
	if (!rows->watching)
		RegisterExprContextCallback(plan_state->ps_ExprContext,
									rows_above_note_rescan,
									PointerGetDatum(rows));
	rows->watching = true;
	if (!ScanDirectionIsForward(plan_state->state->es_direction))
	{
		rows_above_set_back(rows);
		return rows->fetch(plan_state);
	}
	rows_above_fill(rows, wanted);
	rows->handed_out++;
	if (rows_above_size(rows) > 0)
		return RowsAheadNext(rows->ahead)->slot;
	slot = rows->ended ? NULL : rows_above_execute_node(rows);
	rows->ended = false;
	if (slot == NULL)
		rows_above_close_ring(rows);
	return slot;
}

bool
RowsAboveServe(RowsAbove *rows, Oid toast_table, Oid value)
{
	if (!rows->infallible &&
		(!rows->harmless || RowsCertain(rows->node) == 0))
		return false;
	rows->toast_table = toast_table;
	if (RowsAboveGoTo(rows, value))
		return true;
	rows->toast_table = InvalidOid;
	return false;
}

/* It is probably one of those that have not been returned. */
bool
RowsAboveGoTo(RowsAbove *rows, Oid value)
{
	uint64		n = rows->tail - rows->first;

	if (rows->running || rows->begun_again)
		return false;
	for (uint64 i = 0; i < n; i++)
	{
		uint64		at = rows->first + (rows->next - rows->first + i) % n;
		const ToastPointer *pointer = &rows->pointers[at % KEPT];

		if (pointer->value != value || pointer->table != rows->toast_table)
			continue;
		while (at > rows->first &&
			   rows->pointers[(at - 1) % KEPT].turn == pointer->turn)
			at--;
		rows->next = at;
		return true;
	}
	return false;
}

int
RowsAboveNext(RowsAbove *rows, ToastPointer *pointers)
{
	int			n = 0;

	for (; rows->next < rows->tail; rows->next++)
	{
		const ToastPointer *pointer = &rows->pointers[rows->next % KEPT];

		if (n > 0 && pointer->turn != pointers[0].turn)
			break;
		if (pointer->table == rows->toast_table)
			pointers[n++] = *pointer;
	}
	return n;
}
