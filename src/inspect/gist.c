/*-------------------------------------------------------------------------
 *
 * gist.c
 *		GiST indexes: their part of pgstattuple.
 *
 * A GiST index has no metapage; block 0 is the root.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/gist_private.h"
#include "compat.h"
#include "index/index_page.h"
#include "inspect/inspect.h"
#include "inspect/tuples.h"

void
TupleStatsGistPage(void *arg, Relation index, BlockNumber block, Page page)
{
	TupleStats *stats = arg;

	if (PageIsNew(page))
	{
		stats->free_space += BLCKSZ;
		return;
	}
	if (IndexPageHasSpecial(page, sizeof(GISTPageOpaqueData)) &&
		GistPageIsLeaf(page))
		TupleStatsIndexItems(stats, page, FirstOffsetNumber);
}
