/*-------------------------------------------------------------------------
 *
 * overlay.c
 *		Attaching to an access method: pg_am's row names the handler function
 *		that the server asks for an access method's routines, and
 *		lookahead.attach() changes it to a function of ours.
 *
 * Our handler calls the stock one and replaces members of what it returns, so
 * an index is the same index before, meanwhile and afterwards (methods.c).
 *
 * The invariant: as long as a row of pg_am names a function of ours, that
 * function and that row can be dropped by no command, whichever way it gets
 * there (DROP EXTENSION, SCHEMA, OWNED or FUNCTION, with CASCADE or without).
 * No dependency is recorded to keep it, since a dependency is what CASCADE
 * follows: it would take contrib/bloom and all Bloom indexes along.  Instead,
 * a hook that sees every drop refuses these two.  The hook exists only where
 * the library is loaded, so attach() wants shared_preload_libraries, which
 * puts it into every session.
 *
 * Locks.  attach() and detach() hold a lock on the access method, against
 * each other and against its drop, and attach() one on our handler, against
 * its drop, all until the end of the transaction.  A drop locks what it drops
 * before it asks the hook, so whichever comes second sees what the first did.
 *
 * Sessions learn of a change by an invalidation of their relation caches when
 * the transaction commits.  An index that is in use in a session just then, by
 * an open cursor for instance, keeps its routines until it is loaded again;
 * both sets of routines may work on an index at the same time.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_am.h"
#include "catalog/pg_proc.h"
#include "compat.h"
#include "fmgr.h"
#include "funcapi.h"
#include "maintain/maintain.h"
#include "maintain/methods.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/syscache.h"
#include "utils/tuplestore.h"

static object_access_hook_type next_object_access_hook = NULL;
static ProcessUtility_hook_type prev_ProcessUtility = NULL;
static bool preloaded = false;

PG_FUNCTION_INFO_V1(lookahead_attach);
PG_FUNCTION_INFO_V1(lookahead_detach);
PG_FUNCTION_INFO_V1(lookahead_access_methods);

/*
 * What attach() and detach() begin with: the caller may, the method exists,
 * and nobody else attaches to it, detaches from it or drops it meanwhile.
 *		argument	name of the access method, from the SQL function
 *		command		name of the SQL function
 *		returns		its pg_am row, to be changed, in *tuple
 */
static const Method *
begin_change(Datum argument, const char *command, HeapTuple *tuple)
{
	const char *name = NameStr(*DatumGetName(argument));
	const Method *method = MethodByName(name);
	Oid			am;

	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be superuser to call %s", command)));
	PreventCommandIfReadOnly(command);
	PreventCommandDuringRecovery(command);

	if (method == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("pg_lookahead cannot attach to access method \"%s\"",
						name),
				 errhint("It attaches to hash, gin and bloom.")));

	am = GetSysCacheOid1(AMNAME, Anum_pg_am_oid, CStringGetDatum(name));
	if (OidIsValid(am))
		LockDatabaseObject(AccessMethodRelationId, am, 0,
						   ShareUpdateExclusiveLock);
	*tuple = SearchSysCacheCopy1(AMOID, ObjectIdGetDatum(am));
	if (!HeapTupleIsValid(*tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("access method \"%s\" does not exist", name),
				 errhint("It comes with an extension: CREATE EXTENSION %s.",
						 name)));
	return method;
}

/* Write a changed pg_am row, and make all sessions load all indexes anew. */
static void
set_handler(HeapTuple tuple, Oid handler)
{
	Form_pg_am	am = (Form_pg_am) GETSTRUCT(tuple);
	Relation	pg_am = table_open(AccessMethodRelationId, RowExclusiveLock);

	am->amhandler = handler;
	CatalogTupleUpdate(pg_am, &tuple->t_self, tuple);
	table_close(pg_am, RowExclusiveLock);
	CacheInvalidateRelcacheAll();
	InvokeObjectPostAlterHook(AccessMethodRelationId, am->oid, 0);
}

/* Nothing is to be done: say so.  "how" goes before "attached". */
static Datum
leave_as_is(const Method *method, const char *how)
{
	ereport(NOTICE,
			(errmsg("pg_lookahead is %s attached to access method \"%s\"",
					how, method->name)));
	return (Datum) 0;
}

/*
 * lookahead.attach(name) returns void
 */
Datum
lookahead_attach(PG_FUNCTION_ARGS)
{
	HeapTuple	tuple;
	const Method *method = begin_change(PG_GETARG_DATUM(0),
										"lookahead.attach()", &tuple);
	Form_pg_am	am = (Form_pg_am) GETSTRUCT(tuple);
	Oid			ours;

	if (LOOKAHEAD_SERVER_STREAMS_INDEXES)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("there is nothing to attach to access method \"%s\"",
						method->name),
				 errdetail("PostgreSQL " PG_MAJORVERSION " streams its reads itself.")));
	if (!preloaded)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_lookahead must be in \"shared_preload_libraries\" to be attached to an access method"),
				 errdetail("Only a library that is loaded in every session can keep what the access method needs from being dropped."),
				 errhint("Add pg_lookahead to \"shared_preload_libraries\" and restart the server.")));

	if (MethodIsOurs(method, am->amhandler))
		return leave_as_is(method, "already");
	if (!MethodIsStock(method, am->amhandler))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("access method \"%s\" has a handler that pg_lookahead does not know: %s",
						method->name, format_procedure(am->amhandler))));

	ours = MethodFindOurs(method, get_func_namespace(fcinfo->flinfo->fn_oid));
	if (OidIsValid(ours))
		LockDatabaseObject(ProcedureRelationId, ours, 0, AccessShareLock);
	if (!SearchSysCacheExists1(PROCOID, ObjectIdGetDatum(ours)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("function %s of extension pg_lookahead does not exist",
						method->handler)));

	/* does it work, with all the libraries it needs? */
	(void) GetIndexAmRoutine(ours);

	set_handler(tuple, ours);
	PG_RETURN_VOID();
}

/*
 * lookahead.detach(name) returns void
 *
 * Works without shared_preload_libraries, too: it is the way out.
 */
Datum
lookahead_detach(PG_FUNCTION_ARGS)
{
	HeapTuple	tuple;
	const Method *method = begin_change(PG_GETARG_DATUM(0),
										"lookahead.detach()", &tuple);
	Form_pg_am	am = (Form_pg_am) GETSTRUCT(tuple);
	Oid			ours = am->amhandler;
	Oid			stock;

	if (!MethodIsOurs(method, ours))
		return leave_as_is(method, "not");

	stock = MethodFindStock(method, am->oid);
	if (!OidIsValid(stock))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("could not find the handler function of access method \"%s\"",
						method->name),
				 errhint("Look for the function that runs %s of library %s in pg_proc, and put its OID into pg_am.amhandler.",
						 BLOOM_SYMBOL, BLOOM_LIBRARY)));

	/*
	 * pg_upgrade creates the access method anew, with the handler it has and
	 * so with a dependency on it, which must go, too.
	 */
	changeDependencyFor(AccessMethodRelationId, am->oid,
						ProcedureRelationId, ours, stock);
	set_handler(tuple, stock);
	PG_RETURN_VOID();
}

/*
 * lookahead.access_methods() returns setof record
 *
 * One row for each method, in the order of our table.
 */
Datum
lookahead_access_methods(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (size_t i = 0; i < NMETHODS; i++)
	{
		const Method *method = &methods[i];
		HeapTuple	tuple = SearchSysCache1(AMNAME,
											CStringGetDatum(method->name));
		Oid			stock = InvalidOid;
		bool		attached = false;
		Datum		values[6];
		bool		nulls[6] = {false};
		int			n = 0;

		if (HeapTupleIsValid(tuple))
		{
			Form_pg_am	am = (Form_pg_am) GETSTRUCT(tuple);

			attached = MethodIsOurs(method, am->amhandler);
			stock = MethodFindStock(method, am->oid);
			ReleaseSysCache(tuple);
		}
		values[n++] = CStringGetTextDatum(method->name);
		values[n++] = BoolGetDatum(attached);
		nulls[n] = !OidIsValid(stock);
		values[n++] = ObjectIdGetDatum(stock);
		values[n++] = OidFunctionCall3(F_ARRAY_IN,
									   CStringGetDatum(method->members),
									   ObjectIdGetDatum(TEXTOID),
									   Int32GetDatum(-1));
		values[n++] = BoolGetDatum(LOOKAHEAD_SERVER_STREAMS_INDEXES);
		values[n++] = Int64GetDatum((int64) StreamStatsGet(method->user));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* The method whose access method has a certain OID and is attached, or NULL. */
static const Method *
attached_method(Oid amoid)
{
	HeapTuple	tuple = SearchSysCache1(AMOID, ObjectIdGetDatum(amoid));
	const Method *method = NULL;

	if (HeapTupleIsValid(tuple))
	{
		Form_pg_am	am = (Form_pg_am) GETSTRUCT(tuple);

		method = MethodByName(NameStr(am->amname));
		if (method != NULL && !MethodIsOurs(method, am->amhandler))
			method = NULL;
		ReleaseSysCache(tuple);
	}
	return method;
}

/* The method whose access method has a certain handler of ours, or NULL. */
static const Method *
method_of_handler(Oid handler)
{
	if (get_func_rettype(handler) != INDEX_AM_HANDLEROID)
		return NULL;
	for (size_t i = 0; i < NMETHODS; i++)
	{
		HeapTuple	tuple = SearchSysCache1(AMNAME,
											CStringGetDatum(methods[i].name));
		bool		found = HeapTupleIsValid(tuple) &&
			((Form_pg_am) GETSTRUCT(tuple))->amhandler == handler;

		if (HeapTupleIsValid(tuple))
			ReleaseSysCache(tuple);
		if (found && MethodIsOurs(&methods[i], handler))
			return &methods[i];
	}
	return NULL;
}

/* Refuse to drop what an attached access method needs. */
static void
check_drop(Oid classId, Oid objectId)
{
	const Method *method = NULL;

	if (classId == AccessMethodRelationId)
		method = attached_method(objectId);
	else if (classId == ProcedureRelationId)
		method = method_of_handler(objectId);
	if (method == NULL)
		return;

	ereport(ERROR,
			(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
			 classId == AccessMethodRelationId ?
			 errmsg("cannot drop access method \"%s\" while pg_lookahead is attached to it",
					method->name) :
			 errmsg("cannot drop function %s because access method \"%s\" needs it",
					format_procedure(objectId), method->name),
			 errhint("Detach it first: SELECT lookahead.detach('%s').",
					 method->name)));
}

static void
guard_drops(ObjectAccessType access, Oid classId, Oid objectId, int subId,
			void *arg)
{
	if (next_object_access_hook)
		next_object_access_hook(access, classId, objectId, subId, arg);
	if (access == OAT_DROP)
		check_drop(classId, objectId);
}

/*
 * guard_drops() is called for each function that a query uses, too.  So it is
 * installed by the first command of the session that may drop an access method
 * or a function: no other command does, but by running one of these.
 */
static void
overlay_ProcessUtility(PlannedStmt *pstmt, const char *queryString,
					   bool readOnlyTree, ProcessUtilityContext context,
					   ParamListInfo params, QueryEnvironment *queryEnv,
					   DestReceiver *dest, QueryCompletion *qc)
{
	static bool guarded = false;

	if (!guarded && (IsA(pstmt->utilityStmt, DropStmt) ||
					 IsA(pstmt->utilityStmt, DropOwnedStmt)))
	{
		next_object_access_hook = object_access_hook;
		object_access_hook = guard_drops;
		guarded = true;
	}
	prev_ProcessUtility(pstmt, queryString, readOnlyTree, context, params,
						queryEnv, dest, qc);
}

void
MaintainInit(void)
{
	preloaded = process_shared_preload_libraries_in_progress;
	prev_ProcessUtility = ProcessUtility_hook ? ProcessUtility_hook :
											  standard_ProcessUtility;
	ProcessUtility_hook = overlay_ProcessUtility;
}
