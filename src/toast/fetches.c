/*-------------------------------------------------------------------------
 *
 * fetches.c
 *		The server's fetches of TOASTed values, and the scans that they are
 *		made for; see toast_private.h.
 *
 * The server fetches a value when an expression, a DELETE or the client needs
 * it, in whatever node that may be: it searches the index of the TOAST table
 * for the value's chunks.  So the index's routine is replaced, in the relation
 * cache of this process, by one that calls the same functions and tells the
 * scan of the main table that a search begins, goes on and ends.  The routine
 * of the TOAST table itself is never replaced, since VACUUM and others ask
 * which one that is.
 *
 * An entry of the relation cache keeps the routine while the index is open.  It
 * is open only during a fetch, so that any invalidation drops the routine.
 * Then the server's own functions run, and nothing is read ahead.  So a
 * callback notes which TOAST tables are concerned.  For them the routine is
 * replaced anew at the next row of a scan that runs, or when the next one
 * starts.
 *
 * If a value is fetched for which blocks were read, and no scan stands on its
 * row, the nodes above scans get another function, too (rows_above.c), until
 * one of them is found to have returned a row with such a value.
 *
 * Invariants:
 * - The current fetch is reset when its scan is removed, after an error, too,
 *	 and no search is taken for it that has not begun as one.
 * - A scan is in the list only while what it has open and pinned is its own.
 * - Nothing is done while the server holds a lock on a page.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "access/table.h"
#include "compat.h"
#include "exec/judge.h"
#include "exec/takeover.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "index/index_routine.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "toast/toast_private.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/rel.h"

/* The TOAST tables whose index has our routine, as far as is remembered. */
#define REMEMBERED 64

/* The most scans that are told of fetches, such as those of many partitions. */
#define MAX_SCANS 64

typedef struct Replaced
{
	Oid			table;			/* InvalidOid: none */
	Oid			index;
	bool		complete;		/* false if an error came in between */
} Replaced;

static Replaced replaced[REMEMBERED];
static dclist_head scans = DCLIST_STATIC_INIT(scans);

/* The fetch that is going on, and the scan of a table that it is for. */
static IndexScanDesc search = NULL;
static ToastScan *searching = NULL;

static TupleTableSlot *fetches_after_loss(PlanState *plan_state);

/* Is it remembered that the index of a TOAST table has our routine? */
static bool
fetches_are_watched(Oid toast_table)
{
	for (int i = 0; i < REMEMBERED; i++)
		if (replaced[i].table == toast_table && replaced[i].complete)
			return true;
	return false;
}

/* Find out from the keys of a search which chunks of which value it is for. */
static bool
fetches_read_keys(ScanKey keys, int nkeys, ToastFetch *fetch)
{
	if (nkeys < 1 || keys[0].sk_attno != 1 || keys[0].sk_flags != 0 ||
		keys[0].sk_func.fn_oid != F_OIDEQ)
		return false;
	fetch->value = DatumGetObjectId(keys[0].sk_argument);
	fetch->first = 0;
	fetch->last = PG_INT32_MAX;
	for (int i = 1; i < nkeys; i++)
	{
		int32		chunk = DatumGetInt32(keys[i].sk_argument);

		if (keys[i].sk_attno != 2 || keys[i].sk_flags != 0)
			return false;
		switch (keys[i].sk_func.fn_oid)
		{
			case F_INT4EQ:
				fetch->first = fetch->last = chunk;
				break;
			case F_INT4GE:
				fetch->first = Max(chunk, 0);
				break;
			case F_INT4LE:
				fetch->last = chunk;
				break;
			default:
				return false;
		}
	}
	return true;
}

/* Is a fetch for a row of this scan?  Then it has been told. */
static bool
fetches_is_for(ToastScan *scan, const ToastFetch *fetch)
{
	bool		found;

	if (scan->stand_in == NULL)
		return ValuesAheadFetch(scan->ahead, fetch);
	if (ValuesAheadIsIdle(scan->ahead) ||
		!StandInFind(scan->stand_in, scan->toast_table, fetch->value))
		return false;
	found = ValuesAheadFetch(scan->ahead, fetch);
	StandInLeave(scan->stand_in);
	return found;
}

/* The function of a node above scans, while values are fetched. */
static TupleTableSlot *
fetches_above(PlanState *plan_state)
{
	ToastScan  *scan = (ToastScan *) AheadNodeBy(plan_state, AHEAD_FOR_VALUES);

	ToastFetchesWatch(scan);
	return RowsAboveFetch(scan->above, scan->ahead == NULL ? 0 :
						  ValuesAheadWanted(scan->ahead));
}

/*
 * Has a node above scans returned a row with the value that is fetched?  From
 * now on, this is known of the next one, unless another function stands in for
 * the node's own.
 */
static bool
fetches_has_returned(ToastScan *scan, const ToastFetch *fetch)
{
	PlanState  *plan_state = scan->base.plan_state;

	if (OidIsValid(scan->toast_table))
		return false;
	if (scan->above != NULL)
		return RowsAboveServe(scan->above, RelationGetRelid(fetch->table),
							  fetch->value);
	if (plan_state->ExecProcNodeReal == scan->fetch ||
		plan_state->ExecProcNodeReal == fetches_after_loss)
	{
		scan->above = RowsAboveCreate(&scan->base, scan->fetch);
		ExecSetExecProcNode(plan_state, fetches_above);
	}
	return false;
}

/*
 * Find the node above scans that has returned a row with a value.  It is looked
 * for only if a block was read since the last call.
 */
static ToastScan *
fetches_node_above(const ToastFetch *fetch)
{
	static int64 reads_seen = 0;
	bool		is_idle = reads_seen == pgBufferUsage.shared_blks_read &&
		lookahead_debug_force != JUDGE_FORCED;
	dlist_iter	iter;

	reads_seen = pgBufferUsage.shared_blks_read;
	if (is_idle)
		return NULL;
	dclist_foreach(iter, &scans)
	{
		ToastScan  *scan = dclist_container(ToastScan, link, iter.cur);

		CHECK_FOR_INTERRUPTS();
		if (!fetches_has_returned(scan, fetch))
			continue;

		/* if that fails, the query may go on, and this is no scan of a table */
		scan->ahead = ValuesAheadCreate(&scan->base, fetch->table, scan->above);
		scan->toast_table = RelationGetRelid(fetch->table);
		return fetches_is_for(scan, fetch) ? scan : NULL;
	}
	return NULL;
}

/* Find the scan for whose rows the server fetches a value, and tell it. */
static ToastScan *
fetches_scan_of(const ToastFetch *fetch)
{
	dlist_iter	iter;

	dclist_foreach(iter, &scans)
	{
		ToastScan  *scan = dclist_container(ToastScan, link, iter.cur);

		CHECK_FOR_INTERRUPTS();
		if (scan->toast_table != RelationGetRelid(fetch->table))
			continue;
		if (scan->ahead == NULL)
			scan->ahead = ValuesAheadCreate(&scan->base, fetch->table, NULL);
		if (fetches_is_for(scan, fetch))
			return scan;
	}
	return fetches_node_above(fetch);
}

/* The amrescan function: a search begins. */
static void
fetches_rescan(IndexScanDesc scan, ScanKey keys, int nkeys, ScanKey orderbys,
			   int norderbys)
{
	ToastFetch	fetch = {.table = scan->heapRelation,
						 .index = scan->indexRelation};

	btrescan(scan, keys, nkeys, orderbys, norderbys);
	search = NULL;
	searching = NULL;
	if (dclist_is_empty(&scans) || scan->heapRelation == NULL ||
		InterruptHoldoffCount > 0 || CritSectionCount > 0 ||
		!fetches_read_keys(keys, nkeys, &fetch) ||
		(searching = fetches_scan_of(&fetch)) == NULL)
		return;
	search = scan;

	/* the scan that is found is probably the next one, too */
	dclist_move_head(&scans, &searching->link);
}

/* The amgettuple function: the next chunk is wanted. */
static bool
fetches_gettuple(IndexScanDesc scan, ScanDirection direction)
{
	bool		found = btgettuple(scan, direction);

	if (scan == search && found)
		ValuesAheadNextChunk(searching->ahead);
	return found;
}

/* The amendscan function: a search has ended. */
static void
fetches_endscan(IndexScanDesc scan)
{
	if (scan == search)
	{
		ToastScan  *was = searching;

		search = NULL;
		searching = NULL;
		ValuesAheadFetched(was->ahead);
	}
	btendscan(scan);
}

/*
 * Make the index of a TOAST table use our functions.  Neither it nor the table
 * is waited for, if another process has locked it: the query need not come to
 * fetch a value.
 */
void
ToastFetchesWatch(const ToastScan *scan)
{
	static const IndexMembers members = {
		.amrescan = fetches_rescan,
		.amgettuple = fetches_gettuple,
		.amendscan = fetches_endscan,
	};
	Oid			toast_table = scan->toast_table;
	static int	last = 0;
	Replaced   *entry;
	Relation	table;
	List	   *indexes;
	ListCell   *lc;

	if (!OidIsValid(toast_table) || fetches_are_watched(toast_table) ||
		!ConditionalLockRelationOid(toast_table, AccessShareLock))
		return;
	last = (last + 1) % REMEMBERED;
	entry = &replaced[last];
	*entry = (Replaced) {.table = toast_table};

	/* a node above may have values of a table that has been dropped since */
	table = try_table_open(toast_table, NoLock);
	if (table == NULL)
	{
		entry->complete = true;
		UnlockRelationOid(toast_table, AccessShareLock);
		return;
	}
	indexes = RelationGetIndexList(table);
	foreach(lc, indexes)
	{
		Oid			oid = lfirst_oid(lc);
		Relation	index;

		if (!ConditionalLockRelationOid(oid, AccessShareLock))
			continue;
		index = index_open(oid, NoLock);
		if (index->rd_index->indisvalid)
		{
			entry->index = oid;
			if (index->rd_amhandler == F_BTHANDLER)
				(void) IndexRoutineAdd(index, &members);
		}
		index_close(index, AccessShareLock);
	}
	list_free(indexes);
	table_close(table, AccessShareLock);
	entry->complete = true;
}

/*
 * Fetch a row, after the routine has been replaced anew.  Of a node above it is
 * not known yet to which TOAST table it leads.
 */
static TupleTableSlot *
fetches_after_loss(PlanState *plan_state)
{
	ToastScan  *scan = (ToastScan *) AheadNodeBy(plan_state, AHEAD_FOR_VALUES);
	dlist_iter	iter;

	if (plan_state->ExecProcNodeReal == fetches_after_loss)
		ExecSetExecProcNode(plan_state, scan->fetch);
	dclist_foreach(iter, &scans)
	{
		ToastScan  *other = dclist_container(ToastScan, link, iter.cur);

		if (other == scan || !OidIsValid(scan->toast_table))
			ToastFetchesWatch(other);
	}
	return scan->fetch(plan_state);
}

/* The entry of a relation, or each one, may have been dropped. */
static void
fetches_note_invalidation(Datum arg, Oid relation)
{
	dlist_iter	iter;
	bool		any = false;

	for (int i = 0; i < REMEMBERED; i++)
		if (replaced[i].table != InvalidOid &&
			(relation == InvalidOid || relation == replaced[i].table ||
			 relation == replaced[i].index))
		{
			replaced[i].table = InvalidOid;
			any = true;
		}
	if (!any)
		return;
	dclist_foreach(iter, &scans)
	{
		ToastScan  *scan = dclist_container(ToastScan, link, iter.cur);
		PlanState  *plan_state = scan->base.plan_state;

		/* leave it if another function stands in for the node's own */
		if ((!OidIsValid(scan->toast_table) ||
			 !fetches_are_watched(scan->toast_table)) &&
			plan_state->ExecProcNodeReal == scan->fetch)
			ExecSetExecProcNode(plan_state, fetches_after_loss);
	}
}

bool
ToastFetchesHaveRoom(void)
{
	return dclist_count(&scans) < MAX_SCANS;
}

/*
 * After an error, what a query has open and pinned is released.  The memory of
 * a cursor that has failed in a subtransaction stays until it is closed; its
 * scans must not be asked for their rows any more.
 */
static void
fetches_remove_failed(ResourceReleasePhase phase, bool is_commit,
					  bool is_top_level,
					  void *arg)
{
	dlist_mutable_iter iter;

	if (is_commit || phase != RESOURCE_RELEASE_BEFORE_LOCKS)
		return;
	dclist_foreach_modify(iter, &scans)
	{
		ToastScan  *scan = dclist_container(ToastScan, link, iter.cur);

		if (scan->owner == CurrentResourceOwner)
			ToastFetchesRemove(scan);
	}
}

void
ToastFetchesAdd(ToastScan *scan)
{
	static bool registered = false;

	if (!registered)
		RegisterResourceReleaseCallback(fetches_remove_failed, NULL);
	registered = true;
	scan->fetch = scan->base.plan_state->ExecProcNodeReal;
	scan->owner = CurrentResourceOwner;
	dclist_push_head(&scans, &scan->link);
	ToastFetchesWatch(scan);
}

void
ToastFetchesRemove(ToastScan *scan)
{
	if (dlist_node_is_detached(&scan->link))
		return;
	dclist_delete_from_thoroughly(&scans, &scan->link);
	if (searching == scan)
	{
		search = NULL;
		searching = NULL;
	}
}

void
ToastFetchesInit(void)
{
	CacheRegisterRelcacheCallback(fetches_note_invalidation, (Datum) 0);
}
