/*-------------------------------------------------------------------------
 *
 * server_prefetch.c
 *		What a build with SERVER_PREFETCH=1 has in place of look-ahead within
 *		index scans: the reason that EXPLAIN gives.
 *
 * Such a build is for servers that prefetch the heap pages of index scans by
 * themselves (enable_indexscan_prefetch).  An index scan keeps other things in
 * its descriptor there, so the files that look into descriptors are left out.
 * Nested loops look ahead as in any build, because they look up keys and do not
 * need a scan for that.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "early/coming_rows.h"
#include "exec/takeover.h"
#include "scan/scan.h"
#include "toast/toast.h"

/* Every index scan and index-only scan is left to the server. */
static bool
prefetch_serves_index_scan(PlanState *plan_state, Refusal *refusal)
{
	if (!IsA(plan_state, IndexScanState) &&
		!IsA(plan_state, IndexOnlyScanState))
		return false;
	*refusal = REFUSED_SERVER_PREFETCHES;
	return true;
}

static bool
prefetch_serves_bitmap_scan(PlanState *plan_state, Refusal *refusal)
{
	if (!IsA(plan_state, BitmapIndexScanState))
		return false;
	*refusal = REFUSED_BUILT_FOR_PREFETCH;
	return true;
}

void
ScanInit(void)
{
	static const AheadMethods methods = {
		.enabled = &lookahead_index_scan,
		.serves = prefetch_serves_index_scan,
	};

	TakeoverRegister(&methods);
}

void
BitmapScanInit(void)
{
	static const AheadMethods methods = {
		.enabled = &lookahead_index_pages,
		.serves = prefetch_serves_bitmap_scan,
	};

	TakeoverRegister(&methods);
}

/* The server calls the functions of a TOAST table's index in another way. */
void
ToastInit(void)
{
}

/* The rows that a scan comes to are not known: the others are not called. */
bool
ComingRowsKnow(PlanState *plan_state)
{
	return false;
}

void
ComingRowsInit(ComingRows *rows, ScanState *scan)
{
}

void
ComingRowsRestart(ComingRows *rows)
{
}

void
ComingRowsNext(ComingRows *rows, RowVisitor *visitor)
{
}

PG_FUNCTION_INFO_V1(lookahead_heap_block_order);

Datum
lookahead_heap_block_order(PG_FUNCTION_ARGS)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("lookahead.heap_block_order() is not supported by this build"),
			 errdetail("It was built with SERVER_PREFETCH=1, without the functions that step through an index."),
			 errhint("Call the function on a server without enable_indexscan_prefetch.")));
}
