/*-------------------------------------------------------------------------
 *
 * scan.h
 *		Look-ahead within one index scan: its settings, and where it begins.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_SCAN_H
#define PG_LOOKAHEAD_SCAN_H

#include "exec/takeover.h"

/* Values of pg_lookahead.issue_order. */
typedef enum IssueOrder
{
	ISSUE_ORDER_INDEX,
	ISSUE_ORDER_BLOCK
} IssueOrder;

/* Settings, owned by pg_lookahead.c. */
extern bool lookahead_index_scan;
extern bool lookahead_index_pages;
extern int	lookahead_issue_order;
extern int	lookahead_order_window;

/* Serve index scans from now on; called once, when the library is loaded. */
extern void ScanInit(void);

/* Serve bitmap index scans, in the same way. */
extern void BitmapScanInit(void);

#endif							/* PG_LOOKAHEAD_SCAN_H */
