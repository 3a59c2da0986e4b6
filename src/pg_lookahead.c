/*-------------------------------------------------------------------------
 *
 * pg_lookahead.c
 *		What happens when the library is loaded: its settings are defined and
 *		its rooms initialized; and whether library, server and schema fit.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "access/htup_details.h"
#include "apply/apply.h"
#include "catalog/namespace.h"
#include "catalog/pg_namespace.h"
#include "compat.h"
#include "enabled.h"
#include "exec/ahead_node.h"
#include "exec/judge.h"
#include "exec/takeover.h"
#include "foreign_keys/foreign_keys.h"
#include "join/join.h"
#include "maintain/maintain.h"
#include "miscadmin.h"
#include "observe/profile.h"
#include "observe/progress.h"
#include "observe/totals.h"
#include "read/read_rate.h"
#include "scan/scan.h"
#include "toast/toast.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/syscache.h"
#include "write/write.h"

LOOKAHEAD_MODULE_MAGIC;

#define SCHEMA "lookahead"

bool		lookahead_enabled = true;
bool		lookahead_index_scan = true;
bool		lookahead_nested_loop = true;
bool		lookahead_index_pages = true;
bool		lookahead_writes = true;
bool		lookahead_toast = true;
bool		lookahead_apply = false;
int			lookahead_max_distance = -1;
int			lookahead_debug_force = JUDGE_MEASURES;
bool		lookahead_index_vacuum = true;
bool		lookahead_bloom_scan = true;
bool		lookahead_report_vacuum = false;
int			lookahead_issue_order = ISSUE_ORDER_INDEX;
int			lookahead_order_window = 512;

static const struct config_enum_entry forces[] = {
	{"off", JUDGE_MEASURES, false},
	{"on", JUDGE_FORCED, false},
	{"paying", JUDGE_BELIEVES, false},
	{"false", JUDGE_MEASURES, true},
	{"true", JUDGE_FORCED, true},
	{"no", JUDGE_MEASURES, true},
	{"yes", JUDGE_FORCED, true},
	{"0", JUDGE_MEASURES, true},
	{"1", JUDGE_FORCED, true},
	{NULL, 0, false}
};

static const struct config_enum_entry issue_orders[] = {
	{"index", ISSUE_ORDER_INDEX, false},
	{"block", ISSUE_ORDER_BLOCK, false},
	{NULL, 0, false}
};

/* The settings that are on or off, which any user may change. */
static const struct
{
	const char *name;
	const char *summary;
	const char *details;
	bool	   *variable;
	int			flags;
	GucBoolCheckHook check;
} switches[] = {
	{
		"pg_lookahead.enabled",
		"Enables look-ahead of queries, VACUUM and subscriptions.",
		"If it is off, it overrules the settings of the single kinds of look-ahead.  Takes effect with the next query or cursor, and in VACUUM with the next table.",
		&lookahead_enabled, GUC_EXPLAIN
	},
	{
		"pg_lookahead.index_scan",
		"Enables reading ahead of heap blocks in index scans.",
		"Takes effect with the next query or cursor.",
		&lookahead_index_scan, GUC_EXPLAIN
	},
	{
		"pg_lookahead.nested_loop",
		"Enables look-ahead across the outer rows of nested loops, and across rows with correlated subqueries.",
		"Some rows are fetched ahead, and the blocks that inner index scans will need for them are read ahead.  Takes effect with the next query or cursor.",
		&lookahead_nested_loop, GUC_EXPLAIN
	},
	{
		"pg_lookahead.index_pages",
		"Enables reading ahead of leaf pages in scans of btree indexes.",
		"Takes effect with the next query or cursor.",
		&lookahead_index_pages, GUC_EXPLAIN
	},
	{
		"pg_lookahead.writes",
		"Enables reading ahead of the pages that rows to be written, and foreign keys, will need.",
		"Takes effect with the next statement.",
		&lookahead_writes, GUC_EXPLAIN
	},
	{
		"pg_lookahead.toast",
		"Enables reading ahead of the TOASTed values of the next rows of a scan.",
		"Takes effect with the next query or cursor.",
		&lookahead_toast, GUC_EXPLAIN
	},
	{
		"pg_lookahead.apply",
		"Enables look-ahead in workers that apply the changes of a subscription.",
		"A worker looks ahead only if this is on when the worker starts, and if the library is in \"shared_preload_libraries\".",
		&lookahead_apply, 0, ApplyCheckSetting
	},
	{
		"pg_lookahead.index_vacuum",
		"Enables reading ahead in VACUUM of hash, GIN and Bloom indexes.",
		"Takes effect with the next table.  Has no effect on PostgreSQL 19 and later, where the server reads ahead.",
		&lookahead_index_vacuum, 0
	},
	{
		"pg_lookahead.bloom_scan",
		"Enables reading ahead in searches of Bloom indexes.",
		"Has no effect on PostgreSQL 19 and later, where the server reads ahead.",
		&lookahead_bloom_scan, GUC_EXPLAIN
	},
	{
		REPORT_VACUUM_SETTING,
		"Makes VACUUM report which indexes it reads ahead.",
		"VACUUM (VERBOSE) sets this for its parallel workers.",
		&lookahead_report_vacuum,
		GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE
	},
};

PG_FUNCTION_INFO_V1(lookahead_version);
PG_FUNCTION_INFO_V1(lookahead_check_schema);

void		_PG_init(void);

/*
 * Raise an error if the server is of an older minor version than the headers
 * that the library was built with.
 *
 * The server itself refuses a library that was built for another major version.
 * Within a major version PostgreSQL keeps the layout of what extensions use, so
 * that packages are not built anew for each minor version; but only forwards: a
 * library built with newer headers may use what an older server does not have.
 */
static void
lookahead_check_server(void)
{
	const char *server = GetConfigOption("server_version_num", false, false);

	if (pg_strtoint32(server) < LOOKAHEAD_BUILT_FOR)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("pg_lookahead %s was built for PostgreSQL %d.%d or later, and this server is %s",
						LOOKAHEAD_VERSION, LOOKAHEAD_BUILT_FOR / 10000,
						LOOKAHEAD_BUILT_FOR % 10000,
						GetConfigOption("server_version", false, false)),
				 errhint("Install the server's newest minor version, or a build of pg_lookahead for this one.")));
}

/*
 * Called once per process when the library is loaded.
 */
void
_PG_init(void)
{
	lookahead_check_server();
	for (Size i = 0; i < lengthof(switches); i++)
		DefineCustomBoolVariable(switches[i].name, switches[i].summary,
								 switches[i].details, switches[i].variable,
								 *switches[i].variable, PGC_USERSET,
								 switches[i].flags, switches[i].check, NULL,
								 NULL);
	DefineCustomIntVariable("pg_lookahead.max_distance",
							"Sets the maximum number of reads ahead of each scan, join, writing statement, or subscription.",
							"-1 means as many as effective_io_concurrency allows; 0 means none.",
							&lookahead_max_distance,
							-1, -1, 1024,
							PGC_USERSET,
							GUC_EXPLAIN,
							NULL, NULL, NULL);
	DefineCustomEnumVariable("pg_lookahead.debug_force",
							 "Forces look-ahead from the first row on, even if it is not faster.",
							 "This is for testing.  With \"paying\", look-ahead begins and ends as usual, but without measuring whether it is faster.",
							 &lookahead_debug_force,
							 JUDGE_MEASURES,
							 forces,
							 PGC_USERSET,
							 GUC_NOT_IN_SAMPLE,
							 NULL, NULL, NULL);
	DefineCustomEnumVariable("pg_lookahead.issue_order",
							 "Sets the order in which index scans read heap blocks ahead.",
							 "\"index\" means the order of the index; \"block\" sorts the blocks of a window by their numbers.",
							 &lookahead_issue_order,
							 ISSUE_ORDER_INDEX, issue_orders,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);
	DefineCustomIntVariable("pg_lookahead.order_window",
							"Sets the number of heap blocks that are sorted together in block order.",
							"A scan consumes one such window while it reads the next one ahead.",
							&lookahead_order_window,
							512, 2, 16384,
							PGC_USERSET,
							GUC_EXPLAIN,
							NULL, NULL, NULL);
	DefineCustomIntVariable("pg_lookahead.max_read_rate",
							"Sets the maximum amount of data that a diagnostic function or an estimate reads per second.",
							"0 means no limit.  Functions that are running follow a change of the configuration file, unless the session has its own value.",
							&lookahead_max_read_rate,
							0, 0, MAX_KILOBYTES,
							PGC_USERSET,
							GUC_UNIT_KB,
							NULL, NULL, NULL);

	/*
	 * The hooks come after the settings, which a second copy of the library
	 * cannot define, and those of the profile come last, so that they are
	 * around the others.
	 */
	TotalsInit(&ScanTotals);
	TotalsInit(&JoinTotals);
	TotalsInit(&WriteTotals);
	TotalsInit(&ToastTotals);
	TotalsInit(&StreamTotals);
	ProgressInit();
	TakeoverInit();
	AheadExplainInit();
	ScanInit();
	JoinInit();
	WriteInit();
	ForeignKeysInit();
	BitmapScanInit();
	ToastInit();
	ApplyInit();
	MaintainInit();
	ProfileInit();
	MarkGUCPrefixReserved("pg_lookahead");
}

/* lookahead.version() returns text */
Datum
lookahead_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(LOOKAHEAD_VERSION));
}

/*
 * lookahead.check_schema() returns void
 *
 * Raises an error unless the schema belongs to a superuser or to the current
 * user, who is the extension's owner.  Only the extension's script has it.
 *
 * CREATE EXTENSION takes a schema as it finds it.  Whoever owns it could add
 * functions there at any time, to which calls of the extension's functions
 * would then be resolved, with the rights of the caller.
 */
Datum
lookahead_check_schema(PG_FUNCTION_ARGS)
{
	HeapTuple	tuple =
		SearchSysCache1(NAMESPACEOID,
						ObjectIdGetDatum(get_namespace_oid(SCHEMA, false)));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for schema \"%s\"", SCHEMA);
	owner = ((Form_pg_namespace) GETSTRUCT(tuple))->nspowner;
	ReleaseSysCache(tuple);
	if (owner != GetUserId() && !superuser_arg(owner))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("schema \"%s\" is owned by role \"%s\", which is not a superuser",
						SCHEMA, GetUserNameFromId(owner, false)),
				 errhint("Drop the schema, or inspect its contents and make a superuser its owner.")));
	PG_RETURN_VOID();
}
