/*-------------------------------------------------------------------------
 *
 * pg_lookahead.c
 *		The front door: module magic, settings and hooks, nothing else.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "utils/guc.h"

LOOKAHEAD_MODULE_MAGIC;

void		_PG_init(void);

/*
 * Called once per process when the library is loaded.
 */
void
_PG_init(void)
{
	MarkGUCPrefixReserved("pg_lookahead");
}
