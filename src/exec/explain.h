/*-------------------------------------------------------------------------
 *
 * explain.h
 *		What EXPLAIN says of nodes that are served.
 *
 * On servers that let an extension add to a node (18 and later), a node that
 * was executed has a line beside those of BUFFERS if look-ahead had something
 * to do for it.  EXPLAIN (ANALYZE, LOOKAHEAD) gives each node of a kind that is
 * served a line, and the reason where nothing was read ahead.
 *
 * Without ANALYZE the option says which nodes can look ahead, and why others of
 * these kinds will not, as far as the plan, the catalogs and the settings tell.
 * The executor opens no index for such an EXPLAIN, so we do.
 *
 * In text the figures of a report stand in the line, as far as they have a
 * label; a label that begins with a space begins a group.  In other formats
 * each is a property.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_EXPLAIN_H
#define PG_LOOKAHEAD_EXPLAIN_H

#include "exec/ahead_node.h"
#include "observe/totals.h"

/* Install the hook; called once, when the library is loaded. */
extern void AheadExplainInit(void);

/* Add a figure to a report. */
static inline void
AheadReportAdd(AheadReport *report, const char *label, const char *property,
			   double value, int decimals)
{
	Assert(report->n < lengthof(report->figures));
	report->figures[report->n++] =
		(AheadFigure) {.label = label, .property = property, .value = value,
					   .decimals = decimals};
}

/*
 * Add the figures of rows that a statement writes.  mean_rows: the mean number
 * of rows ahead.
 */
static inline void
AheadReportWrites(AheadReport *report, const WriteCounters *c, double mean_rows)
{
	AheadReportAdd(report, "rows mean", "Mean Rows", mean_rows, 1);
	AheadReportAdd(report, "max", "Maximum Rows", c->max_rows, 0);
	AheadReportAdd(report, " index blocks read", "Index Blocks Read",
				   c->pages.leaf_blocks_read, 0);
	AheadReportAdd(report, " heap blocks read", "Heap Blocks Read",
				   c->pages.heap_blocks_read, 0);
	AheadReportAdd(report, " unused", "Blocks Unused", c->pages.blocks_unused,
				   0);
}

#endif							/* PG_LOOKAHEAD_EXPLAIN_H */
