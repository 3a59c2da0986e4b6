/*-------------------------------------------------------------------------
 *
 * mask_page.c
 *		What wal_consistency_checking compares of a page: all that the mask
 *		function of its resource manager leaves.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog_internal.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "varatt.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(mask_page);

/* mask_page(page bytea, manager text, block int) RETURNS bytea */
Datum
mask_page(PG_FUNCTION_ARGS)
{
	bytea	   *page = PG_GETARG_BYTEA_P_COPY(0);
	char	   *manager = text_to_cstring(PG_GETARG_TEXT_PP(1));
	char	   *masked = palloc(BLCKSZ);	/* aligned */

	Assert(VARSIZE_ANY_EXHDR(page) == BLCKSZ);
	memcpy(masked, VARDATA(page), BLCKSZ);
	for (int id = 0; id <= RM_MAX_BUILTIN_ID; id++)
	{
		RmgrData	found = GetRmgr(id);

		if (strcmp(found.rm_name, manager) == 0)
		{
			found.rm_mask(masked, PG_GETARG_INT32(2));
			memcpy(VARDATA(page), masked, BLCKSZ);
			PG_RETURN_BYTEA_P(page);
		}
	}
	elog(ERROR, "there is no resource manager %s", manager);
}
