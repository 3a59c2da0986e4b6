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
#include "maintain/maintain.h"
#include "observe/profile.h"
#include "scan/node.h"
#include "utils/guc.h"

LOOKAHEAD_MODULE_MAGIC;

bool		lookahead_index_scan = true;
int			lookahead_max_distance = -1;
bool		lookahead_debug_force = false;
bool		lookahead_track_functions = false;
int			lookahead_track_interval = 2048;
char	   *lookahead_profile_directory = NULL;
int			lookahead_profile_max_files = 1000;
int			lookahead_issue_order = ISSUE_ORDER_INDEX;
int			lookahead_window = 512;

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
	DefineCustomBoolVariable("pg_lookahead.index_scan",
							 "Lets index scans read the heap blocks of coming entries ahead.",
							 "Takes effect with the next query or cursor.",
							 &lookahead_index_scan,
							 true,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);
	DefineCustomIntVariable("pg_lookahead.max_distance",
							"Sets how many heap blocks an index scan may have in flight or pinned ahead.",
							"-1 means as many as effective_io_concurrency allows in flight; 0 means none.",
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
	DefineCustomIntVariable("pg_lookahead.window",
							"Sets how many heap blocks are sorted together, at most, in block order.",
							NULL,
							&lookahead_window,
							512, 2, 16384,
							PGC_USERSET,
							GUC_EXPLAIN,
							NULL, NULL, NULL);
	DefineCustomBoolVariable("pg_lookahead.debug_force",
							 "Makes index scans look ahead from their first row on, whether it pays or not.",
							 "This is for testing.",
							 &lookahead_debug_force,
							 false,
							 PGC_USERSET,
							 GUC_NOT_IN_SAMPLE,
							 NULL, NULL, NULL);
	/*
	 * Not before the first setting, which a second copy of the library cannot
	 * define; nor after the next one, which may install the profile's hooks,
	 * as these are to be outside.
	 */
	ScanHooksInit();
	MaintainInit();

	DefineCustomBoolVariable("pg_lookahead.track_functions",
							 "Counts calls and time of the functions of scans, diagnostics and VACUUM.",
							 NULL,
							 &lookahead_track_functions,
							 false,
							 PGC_SUSET,
							 0,
							 ProfileCheckTracking, ProfileAssignTracking, NULL);
	DefineCustomIntVariable("pg_lookahead.track_functions_interval",
							"Of so many calls from outside, one is timed, with all that it calls.",
							"1 means all; calls are always counted.",
							&lookahead_track_interval,
							2048, 1, 65536,
							PGC_SUSET,
							0,
							NULL, NULL, NULL);
	DefineCustomStringVariable("pg_lookahead.profile_directory",
							   "Where processes leave records of their functions at exit.",
							   "Relative to the data directory.  Empty means nowhere.",
							   &lookahead_profile_directory,
							   "pg_lookahead_profiles",
							   PGC_SUSET,
							   GUC_SUPERUSER_ONLY,
							   NULL, NULL, NULL);
	DefineCustomIntVariable("pg_lookahead.profile_max_files",
							"With so many files in its directory, no further record is written.",
							NULL,
							&lookahead_profile_max_files,
							1000, 0, 100000,
							PGC_SUSET,
							0,
							NULL, NULL, NULL);
	MarkGUCPrefixReserved("pg_lookahead");
}
