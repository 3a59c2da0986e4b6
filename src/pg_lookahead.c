/*-------------------------------------------------------------------------
 *
 * pg_lookahead.c
 *		The front door: module magic, settings and hooks, nothing else.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "compat.h"
#include "enabled.h"
#include "exec/explain.h"
#include "exec/judge.h"
#include "exec/settings.h"
#include "exec/takeover.h"
#include "join/join.h"
#include "maintain/maintain.h"
#include "observe/profile.h"
#include "observe/progress.h"
#include "observe/totals.h"
#include "scan/scan.h"
#include "read/sweep.h"
#include "utils/guc.h"
#include "version.h"

LOOKAHEAD_MODULE_MAGIC;

bool		lookahead_enabled = true;
bool		lookahead_index_scan = true;
bool		lookahead_nested_loop = true;
bool		lookahead_index_pages = true;
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

void		_PG_init(void);

/*
 * Called once per process when the library is loaded.
 */
void
_PG_init(void)
{
	VersionCheckServer();
	DefineCustomBoolVariable("pg_lookahead.enabled",
							 "Lets queries and VACUUM read ahead, as the other settings say.",
							 "Takes effect with the next query or cursor, and in a VACUUM with the next table.",
							 &lookahead_enabled,
							 true,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("pg_lookahead.index_scan",
							 "Lets index scans read the heap blocks of coming entries ahead.",
							 "Takes effect with the next query or cursor.",
							 &lookahead_index_scan,
							 true,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("pg_lookahead.nested_loop",
							 "Lets nested loops fetch outer rows ahead, and read for them what the inner index scan will need.",
							 "Takes effect with the next query or cursor.",
							 &lookahead_nested_loop,
							 true,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("pg_lookahead.index_pages",
							 "Lets scans of btrees read coming leaf pages ahead.",
							 "Takes effect with the next query or cursor.",
							 &lookahead_index_pages,
							 true,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);
	DefineCustomIntVariable("pg_lookahead.max_distance",
							"Sets how many heap blocks an index scan, or outer rows a nested loop, may be ahead.",
							"-1 leaves it to effective_io_concurrency; 0 means none.",
							&lookahead_max_distance,
							-1, -1, 1024,
							PGC_USERSET,
							GUC_EXPLAIN,
							NULL, NULL, NULL);
	DefineCustomEnumVariable("pg_lookahead.issue_order",
							 "Sets the order in which heap blocks of coming entries are read ahead.",
							 "\"index\" reads them in the order of the index, \"block\" sorts those of a window.",
							 &lookahead_issue_order,
							 ISSUE_ORDER_INDEX, issue_orders,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);
	DefineCustomIntVariable("pg_lookahead.order_window",
							"Sets how many heap blocks a window of block order has.",
							"Two windows are held: one is consumed while the next is read.",
							&lookahead_order_window,
							512, 2, 16384,
							PGC_USERSET,
							GUC_EXPLAIN,
							NULL, NULL, NULL);
	DefineCustomEnumVariable("pg_lookahead.debug_force",
							 "Makes index scans and nested loops look ahead from their first row on, whether it pays or not.",
							 "This is for testing.  With \"paying\", they begin and end as usual, but do not measure whether look-ahead pays.",
							 &lookahead_debug_force,
							 JUDGE_MEASURES,
							 forces,
							 PGC_USERSET,
							 GUC_NOT_IN_SAMPLE,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("pg_lookahead.index_vacuum",
							 "Lets VACUUM read hash, GIN and Bloom indexes ahead.",
							 "Takes effect with the next table.  PostgreSQL 19 does this itself.",
							 &lookahead_index_vacuum,
							 true,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("pg_lookahead.bloom_scan",
							 "Lets queries read Bloom indexes ahead.",
							 "PostgreSQL 19 does this itself.",
							 &lookahead_bloom_scan,
							 true,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);
	DefineCustomIntVariable("pg_lookahead.max_read_rate",
							"Limits how much a diagnostic function or an estimate reads per second.",
							"0 means no limit.  A function that is running follows a change at once.",
							&lookahead_max_read_rate,
							0, 0, MAX_KILOBYTES,
							PGC_USERSET,
							GUC_UNIT_KB,
							NULL, NULL, NULL);
	DefineCustomBoolVariable(REPORT_VACUUM_SETTING,
							 "Makes VACUUM tell which indexes it reads ahead.",
							 "It is set by VACUUM (VERBOSE) for its parallel workers.",
							 &lookahead_report_vacuum,
							 false,
							 PGC_USERSET,
							 GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE |
							 GUC_DISALLOW_IN_FILE,
							 NULL, NULL, NULL);

	/*
	 * The hooks come after the settings, which a second copy of the library
	 * cannot define, and those of the profile come last, so that they are
	 * around the others.
	 */
	TotalsInit(&ScanTotals);
	TotalsInit(&JoinTotals);
	TotalsInit(&StreamTotals);
	ProgressInit();
	TakeoverInit();
	AheadExplainInit();
	ScanInit();
	JoinInit();
	BitmapScanInit();
	MaintainInit();
	ProfileInit();
	MarkGUCPrefixReserved("pg_lookahead");
}
