/*-------------------------------------------------------------------------
 *
 * index_page.c
 *		The error for a corrupt index page; see index_page.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "index_page.h"
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
