/*-------------------------------------------------------------------------
 *
 * index_page.c
 *		Checks of a page of any index before it is used; see index_page.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "index/index_page.h"
#include "utils/rel.h"

void
IndexPageIsBad(Relation index, BlockNumber block)
{
	ereport(ERROR,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("index \"%s\" contains corrupted page at block %u",
					RelationGetRelationName(index), block),
			 errhint("Please REINDEX it.")));
}

void
IndexPageIsSkipped(Relation index, BlockNumber block)
{
	ereport(WARNING,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("index \"%s\" contains a page of another kind at block %u",
					RelationGetRelationName(index), block),
			 errdetail("VACUUM skips the page."),
			 errhint("Please REINDEX it.")));
}
