/*-------------------------------------------------------------------------
 *
 * hash_lookup.h
 *		Where a scan of a hash index that has not begun will find its first
 *		entries.
 *
 * HashLookupBucket() names the first page of the key's bucket, and
 * HashLookupMatches() gives the heap blocks that this page has for the key.
 * Further pages of a bucket are not looked at.
 *
 * Nothing that is found here decides what the scan returns, so every doubt (a
 * bucket that has been split, a damaged page) is answered by knowing nothing.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_HASH_LOOKUP_H
#define PG_LOOKAHEAD_HASH_LOOKUP_H

#include "access/skey.h"
#include "storage/buf.h"
#include "utils/relcache.h"

typedef struct HashLookup HashLookup;

/*
 * Create a lookup for scans with these keys, whose arguments are not looked at.
 * Return NULL, and the reason in *refusal, if types or functions are those of
 * an extension, which may do anything.
 */
extern HashLookup *HashLookupCreate(MemoryContext mcxt, Relation index,
									ScanKey keys, int nkeys,
									const char **refusal);

/*
 * Find the first page of the keys' bucket.  keys: those of HashLookupCreate(),
 * with arguments, none of which is NULL.  Return false if it is not known.
 */
extern bool HashLookupBucket(HashLookup *lookup, ScanKey keys,
							 BlockNumber *bucket_page);

/*
 * Write at most "most" heap blocks of that page's entries that have the key's
 * hash code into an array, in scan order and without repetitions in a row.
 * buffer: that page, pinned.  Return their number.
 */
extern int	HashLookupMatches(HashLookup *lookup, ScanKey keys, Buffer buffer,
							  bool ignore_killed, BlockNumber *blocks,
							  int most);

#endif							/* PG_LOOKAHEAD_HASH_LOOKUP_H */
