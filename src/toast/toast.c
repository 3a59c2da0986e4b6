/*-------------------------------------------------------------------------
 *
 * toast.c
 *		Which scans have the TOASTed values of their rows read ahead, and what
 *		EXPLAIN says of them.
 *
 * The server executes these scans by itself.  What is done for them is done
 * when it fetches a value (fetches.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "catalog/catalog.h"
#include "compat.h"
#include "early/coming_rows.h"
#include "exec/ahead_node.h"
#include "exec/takeover.h"
#include "toast/toast.h"
#include "toast/toast_private.h"
#include "utils/rel.h"

/* Has the query scans that are served? */
static bool
toast_has_scans(PlanState *plan_state)
{
	const AheadQuery *query = AheadQueryOf(plan_state->state);

	for (const AheadNode *node = query == NULL ? NULL : query->first;
		 node != NULL; node = node->next)
		if (node->methods->role == AHEAD_FOR_VALUES)
			return true;
	return false;
}

/*
 * Nodes that cannot profit are not taken, and EXPLAIN says nothing of them:
 * most tables have a TOAST table, and few queries fetch anything from it.
 */
static bool
toast_serves(PlanState *plan_state, Refusal *refusal)
{
	Relation	table;

	if (SettingsRefusal() != NOT_REFUSED)
		return false;
	if (RowsAboveKnow(plan_state))
		return toast_has_scans(plan_state) && ToastFetchesHaveRoom();
	if (!ComingRowsKnow(plan_state))
		return false;

	/* src/scan has the heap pages of coming entries read, or nobody does */
	if (IsA(plan_state, IndexScanState) && AheadNodeFind(plan_state) == NULL)
		return false;
	table = ((ScanState *) plan_state)->ss_currentRelation;
	return table != NULL && OidIsValid(table->rd_rel->reltoastrelid) &&
		ToastFetchesHaveRoom() &&
		!RelationUsesLocalBuffers(table) && !IsCatalogRelation(table) &&
		table->rd_tableam == GetHeapamTableAmRoutine();
}

static void
toast_begin(AheadNode *node)
{
	ToastScan  *scan = (ToastScan *) node;
	ScanState  *state = (ScanState *) node->plan_state;

	if (!RowsAboveKnow(node->plan_state))
		scan->toast_table = state->ss_currentRelation->rd_rel->reltoastrelid;
	ToastFetchesAdd(scan);
}

static void
toast_end(AheadNode *node)
{
	ToastScan  *scan = (ToastScan *) node;

	ToastFetchesRemove(scan);
	if (scan->ahead != NULL)
		ValuesAheadEnd(scan->ahead);
}

/*
 * Most scans fetch no value, and nothing is to be said of them.  The figures
 * are those of the process that runs EXPLAIN; what parallel workers did is in
 * the view lookahead.toast_stats only.
 */
static void
toast_report(AheadNode *node, AheadReport *report)
{
	const ToastScan *scan = (const ToastScan *) node;
	ToastCounters c;

	if (scan->ahead == NULL)
		return;
	c = ValuesAheadCounters(scan->ahead);
	if (c.values == 0)
	{
		if (report->reason == NOT_REFUSED)
			report->reason = ValuesAheadReason(scan->ahead);
		return;
	}
	AheadReportAdd(report, "values", "Values", c.values);
	AheadReportAdd(report, "unused", "Values Unused", c.values_unused);
	AheadReportAdd(report, "max", "Maximum Values", c.max_values);
	AheadReportAdd(report, " toast index blocks read",
				   "TOAST Index Blocks Read", c.pages.leaf_blocks_read);
	AheadReportAdd(report, " toast blocks read", "TOAST Blocks Read",
				   c.pages.heap_blocks_read);
	AheadReportAdd(report, "cached", "TOAST Blocks Cached", c.pages.blocks_hit);
	AheadReportAdd(report, " unused", "TOAST Blocks Unused",
				   c.pages.blocks_unused);
}

static const AheadMethods toast_methods = {
	.enabled = &lookahead_toast,
	.size = sizeof(ToastScan),
	.role = AHEAD_FOR_VALUES,
	.serves = toast_serves,
	.begin = toast_begin,
	.end = toast_end,
	.report = toast_report,
};

void
ToastInit(void)
{
	ToastFetchesInit();
	FollowingInit(&toast_methods);
	TakeoverRegister(&toast_methods);
}
