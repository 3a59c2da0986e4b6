/*-------------------------------------------------------------------------
 *
 * key_type.h
 *		Which keys can be tested outside the access method, and whether the
 *		functions by which an index, or a partitioned table, compares values
 *		are the server's own.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_KEY_TYPE_H
#define PG_LOOKAHEAD_KEY_TYPE_H

#include "access/skey.h"
#include "catalog/pg_type.h"
#include "utils/lsyscache.h"

/* Only the access method itself can test keys of arrays and rows. */
static inline bool
KeyIsUsual(const ScanKeyData *key)
{
	return (key->sk_flags &
			(SK_ROW_HEADER | SK_ROW_MEMBER | SK_SEARCHARRAY)) == 0;
}

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
