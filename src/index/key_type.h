/*-------------------------------------------------------------------------
 *
 * key_type.h
 *		Whether the functions by which an index, or a partitioned table,
 *		compares values are the server's own.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_KEY_TYPE_H
#define PG_LOOKAHEAD_KEY_TYPE_H

#include "catalog/pg_type.h"
#include "utils/lsyscache.h"

/*
 * Do the comparisons of a type call those of its elements, which may be
 * anybody's?  So it is with arrays, rows and ranges.
 */
static inline bool
KeyTypeCallsOthers(Oid type)
{
	return get_typtype(type) == TYPTYPE_PSEUDO && type != ANYENUMOID;
}

#endif							/* PG_LOOKAHEAD_KEY_TYPE_H */
