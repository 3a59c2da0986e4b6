/*-------------------------------------------------------------------------
 *
 * vacuum.c
 *		When the indexes of a table are made to be vacuumed through streams.
 *
 * VACUUM is noticed by the check hook of search_path, which it sets after it
 * has locked the table and before it opens the indexes.  What is done to their
 * relation cache entries before is lost while VACUUM waits for its lock: a hook
 * of utility commands served 54 of 150 beside ANALYZE, this one all.  It is
 * also called in autovacuum and in parallel workers, where no command is.
 *
 * All locks have been taken by then, permissions checked, and tables skipped,
 * in the way that VACUUM does it.  What is done here is what VACUUM does itself
 * as its next step: it opens the indexes, with the same locks; so there is no
 * error here that VACUUM would not meet.  But it waits for no lock.  A server
 * that does not set search_path there would not be served, and nothing else
 * would be different.
 *
 * The table is found by its lock.  In a transaction of VACUUM, the process
 * holds VACUUM's kind of lock on the table that it vacuums and, if that is a
 * TOAST table, on the table which that belongs to, but on nothing else.
 *
 * In a parallel worker, the leader holds the lock.  On PostgreSQL 17 a worker
 * gets the settings before it joins the leader's transaction, and then clears
 * its relation cache; a callback that is called after that does the work.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/parallel.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "compat.h"
#include "enabled.h"
#include "maintain/maintain.h"
#include "miscadmin.h"
#include "observe/totals.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "tcop/utility.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

static GucStringCheckHook next_check_search_path = NULL;
static ProcessUtility_hook_type prev_ProcessUtility = NULL;

/* Is the command a VACUUM (VERBOSE)? */
static bool verbose = false;

/*
 * The table of this database on which a process holds VACUUM's lock; InvalidOid
 * if there is none, or more than one.
 *		proc	this process, or the leader of its parallel group
 */
static Oid
vacuum_find_locked(const PGPROC *proc)
{
	Oid			table = InvalidOid;
	int			n = 0;

	for (int i = 0; i < NUM_LOCK_PARTITIONS; i++)
	{
		const dlist_head *held = &proc->myProcLocks[i];
		dlist_iter	iter;

		if (dlist_is_empty(held))
			continue;
		LWLockAcquire(LockHashPartitionLockByIndex(i), LW_SHARED);
		dlist_foreach(iter, unconstify(dlist_head *, held))
		{
			const PROCLOCK *proclock =
				dlist_container(PROCLOCK, procLink, iter.cur);
			const LOCKTAG *tag = &proclock->tag.myLock->tag;
			LOCKMASK	mask = LOCKBIT_ON(ShareUpdateExclusiveLock);

			if ((proclock->holdMask & mask) != 0 &&
				tag->locktag_type == LOCKTAG_RELATION &&
				tag->locktag_field1 == MyDatabaseId)
			{
				table = tag->locktag_field2;
				n++;
			}
		}
		LWLockRelease(LockHashPartitionLockByIndex(i));
	}
	return n == 1 ? table : InvalidOid;
}

/*
 * The kind of an index, which need not be locked.  False if it is of a kind
 * that cannot be read through streams, or has been dropped.
 */
static bool
vacuum_kind_of_index(Oid index, StreamUser *user)
{
	HeapTuple	tuple = SearchSysCache1(AMOID,
										ObjectIdGetDatum(get_rel_relam(index)));
	Oid			handler;

	if (!HeapTupleIsValid(tuple))
		return false;
	handler = ((Form_pg_am) GETSTRUCT(tuple))->amhandler;
	ReleaseSysCache(tuple);
	return RoutineKind(handler, user);
}

/*
 * Make one index be served, if it is of a kind that can be.  If another process
 * has locked it, VACUUM is left to wait for that.
 */
static void
vacuum_serve_index(Oid oid)
{
	StreamUser	user;
	Relation	index;

	if (!vacuum_kind_of_index(oid, &user))
		return;
	if (!ConditionalLockRelationOid(oid, RowExclusiveLock))
	{
		TotalsAddStream(user, (StreamCounters) {.vacuums_not_served = 1});
		return;
	}
	index = try_index_open(oid, NoLock);
	if (index == NULL)
		return;

	/* VACUUM passes over an index that is not ready, and keeps no lock on it */
	if (!index->rd_index->indisready)
		index_close(index, RowExclusiveLock);
	else if (RoutineReplace(index, user))
		ServedAdd(index, user);
	else
	{
		TotalsAddStream(user, (StreamCounters) {.vacuums_not_served = 1});
		index_close(index, NoLock);
	}
}

/*
 * Make all indexes of the table be served that is locked for VACUUM by this
 * process, or by the leader of its parallel group.
 */
static void
vacuum_serve(const PGPROC *proc)
{
	Oid			oid = vacuum_find_locked(proc);
	Relation	table;
	List	   *indexes;

	/* one of two is a TOAST table, and indexes of that are btrees */
	if (!OidIsValid(oid) || get_rel_relkind(oid) == RELKIND_TOASTVALUE)
		return;

	/* it is locked: by this process, or by the leader */
	table = RelationIdGetRelation(oid);
	if (table == NULL)
		return;
	ServedBegin(table);
	indexes = RelationGetIndexList(table);
	foreach_oid(index, indexes)
		vacuum_serve_index(index);
	list_free(indexes);
	RelationClose(table);
}

/* In a parallel worker of 17: the relation cache has been cleared. */
static void
vacuum_at_relcache_invalidation(Datum arg, Oid relation)
{
	static bool served = false;

	if (served || !InitializingParallelWorker || OidIsValid(relation) ||
		(MyProc->statusFlags & PROC_IN_VACUUM) == 0)
		return;
	served = true;
	vacuum_serve(MyProc->lockGroupLeader);
}

/* In a parallel worker, search_path is set to the leader's. */
static void
vacuum_begin_worker(void)
{
	static bool registered = false;

	if ((MyProc->statusFlags & PROC_IN_VACUUM) != 0)
		vacuum_serve(MyProc->lockGroupLeader);
	else if (LOOKAHEAD_SETTINGS_COME_FIRST && !registered)
	{
		CacheRegisterRelcacheCallback(vacuum_at_relcache_invalidation,
									  (Datum) 0);
		registered = true;
	}
}

/*
 * A table's VACUUM has come to where search_path is set to a safe value, if
 * this is the first time in its transaction.  Functions that an index needs may
 * set search_path later, in the middle of the VACUUM, and in a subtransaction.
 */
static void
vacuum_begin_table(void)
{
	static LocalTransactionId last = InvalidLocalTransactionId;

	if (last == MyProc->vxid.lxid)
		return;
	last = MyProc->vxid.lxid;
	if (!lookahead_enabled || !lookahead_index_vacuum)
		return;
	vacuum_serve(MyProc);

	/* until the end of the table, and for parallel workers */
	if (verbose && ServedAny())
		(void) set_config_option(REPORT_VACUUM_SETTING, "on",
								 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
								 true, 0, false);
}

static bool
vacuum_check_search_path(char **newval, void **extra, GucSource source)
{
	if (source == PGC_S_SESSION && MyProc != NULL)
	{
		if (InitializingParallelWorker)
			vacuum_begin_worker();
		else if ((MyProc->statusFlags & PROC_IN_VACUUM) != 0 &&
				 !IsParallelWorker())
			vacuum_begin_table();
	}
	return next_check_search_path(newval, extra, source);
}

/* Find out whether VACUUM is VERBOSE; all else is left to the server. */
static void
vacuum_ProcessUtility(PlannedStmt *pstmt, const char *queryString,
					  bool readOnlyTree, ProcessUtilityContext context,
					  ParamListInfo params, QueryEnvironment *queryEnv,
					  DestReceiver *dest, QueryCompletion *qc)
{
	if (IsA(pstmt->utilityStmt, VacuumStmt))
	{
		verbose = false;
		foreach_node(DefElem, option,
					 ((VacuumStmt *) pstmt->utilityStmt)->options)
			if (strcmp(option->defname, "verbose") == 0)
				verbose = defGetBoolean(option);
	}
	prev_ProcessUtility(pstmt, queryString, readOnlyTree, context, params,
						queryEnv, dest, qc);
}

void
MaintainInit(void)
{
	if (LOOKAHEAD_SERVER_STREAMS_INDEXES)
		return;

	next_check_search_path =
		LookaheadCheckSearchPathBy(vacuum_check_search_path);
	if (next_check_search_path != NULL)
		INSTALL_HOOK(ProcessUtility, vacuum_ProcessUtility);
	BloomHooksInit();
}
