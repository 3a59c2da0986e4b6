/*-------------------------------------------------------------------------
 *
 * hash_lookup.c
 *		Where a scan of a hash index that has not begun will find its first
 *		entries; see index_lookup.h.
 *
 * The access method keeps a copy of the metapage in the relation's cache
 * entry, which tells the bucket of a hash code.  The copy is used even if it
 * is out of date: if the bucket has been split since, its page says so, and
 * the look-up ends.
 *
 * For a scan, only the first page of the bucket is looked at.  For an entry
 * that will be inserted, the look-up goes on to the first page of the bucket
 * that has room for the entry.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/hash.h"
#include "builtin.h"
#include "index/index_lookup.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

typedef struct HashLookup
{
	IndexLookup base;
	FmgrInfo	hash;			/* hash function of the key's type */
} HashLookup;

static uint32
hash_lookup_code(HashLookup *lookup)
{
	return DatumGetUInt32(
		FunctionCall1Coll(&lookup->hash, lookup->base.index->rd_indcollation[0],
						  lookup->base.keys[0].sk_argument));
}

/*
 * The copy of the metapage in the relation's cache entry, or NULL.  A function
 * of the server, as one that hashes a value, may look into catalogs, and so
 * have the entry rebuilt: the copy is gone then.
 */
static inline const HashMetaPageData *
hash_lookup_metadata(const HashLookup *lookup)
{
	return (const HashMetaPageData *) lookup->base.index->rd_amcache;
}

static inline Bucket
hash_lookup_bucket_of(const HashMetaPageData *meta, uint32 code)
{
	return _hash_hashkey2bucket(code, meta->hashm_maxbucket,
								meta->hashm_highmask, meta->hashm_lowmask);
}

static bool
hash_lookup_begin(IndexLookup *base, IndexPlace *place)
{
	HashLookup *lookup = (HashLookup *) base;
	uint32		code = hash_lookup_code(lookup);
	const HashMetaPageData *meta = hash_lookup_metadata(lookup);
	Bucket		bucket;
	uint32		spares = 0;

	if (meta == NULL)
		return false;
	bucket = hash_lookup_bucket_of(meta, code);
	if (bucket == InvalidBucket)
		return false;

	/* overflow pages lie between those of buckets that were added together */
	if (bucket > 0)
	{
		uint32		phase = _hash_spareindex(bucket + 1) - 1;

		if (phase >= HASH_MAX_SPLITPOINTS)
			return false;
		spares = meta->hashm_spares[phase];
	}
	*place = (IndexPlace) {.page = bucket + spares + 1};
	return true;
}

/* Is this a page of the hash code's bucket, as far as is known? */
static bool
hash_lookup_check_page(const HashLookup *lookup, uint32 code, Page page)
{
	const HashMetaPageData *meta = hash_lookup_metadata(lookup);
	HashPageOpaque opaque;

	if (meta == NULL || PageIsNew(page) ||
		!IndexPageHasSpecial(page, sizeof(HashPageOpaqueData)))
		return false;
	opaque = HashPageGetOpaque(page);
	return ((opaque->hasho_flag & LH_PAGE_TYPE) == LH_OVERFLOW_PAGE ||
			((opaque->hasho_flag & LH_PAGE_TYPE) == LH_BUCKET_PAGE &&
			 opaque->hasho_prevblkno <= meta->hashm_maxbucket)) &&
		opaque->hasho_page_id == HASHO_PAGE_ID &&
		opaque->hasho_bucket == hash_lookup_bucket_of(meta, code) &&
		PageGetMaxOffsetNumber(page) <= MaxIndexTuplesPerPage;
}

/* The entry at an offset, or NULL if the page is damaged there. */
static IndexTuple
hash_lookup_entry_at(Page page, OffsetNumber offnum)
{
	IndexTuple	itup = IndexTupleAt(page, offnum);

	if (itup == NULL ||
		IndexInfoFindDataOffset(itup->t_info) + sizeof(uint32) >
			IndexTupleSize(itup))
		return NULL;
	return itup;
}

/* The first entry with this hash code or a greater one; 0: page is damaged. */
static OffsetNumber
hash_lookup_search_page(Page page, uint32 code)
{
	int			first = FirstOffsetNumber,
				end = PageGetMaxOffsetNumber(page) + 1;

	while (first < end)
	{
		int			middle = first + (end - first) / 2;
		IndexTuple	itup = hash_lookup_entry_at(page, middle);

		if (itup == NULL)
			return InvalidOffsetNumber;
		if (_hash_get_indextuple_hashkey(itup) < code)
			first = middle + 1;
		else
			end = middle;
	}
	return first;
}

/*
 * Go on to the next page of the bucket if the server has no room for another
 * entry on this one.
 */
static int
hash_lookup_look_for_room(Page page, IndexPlace *place)
{
	HashPageOpaque opaque = HashPageGetOpaque(page);

	if (PageGetFreeSpace(page) >=
			MAXALIGN(sizeof(IndexTupleData) + sizeof(uint32)) ||
		H_HAS_DEAD_TUPLES(opaque) ||
		!BlockNumberIsValid(opaque->hasho_nextblkno))
		return 0;
	place->page = opaque->hasho_nextblkno;
	return INDEX_LOOKUP_GOES_ON;
}

static int
hash_lookup_look(IndexLookup *base, Page page, IndexPlace *place,
				 BlockNumber *blocks, int most)
{
	HashLookup *lookup = (HashLookup *) base;
	uint32		code = hash_lookup_code(lookup);
	OffsetNumber offnum;
	int			n = 0;

	if (!hash_lookup_check_page(lookup, code, page))
		return 0;
	if (most == 0)
		return hash_lookup_look_for_room(page, place);
	offnum = hash_lookup_search_page(page, code);
	if (offnum == InvalidOffsetNumber)
		return 0;
	for (; offnum <= PageGetMaxOffsetNumber(page) && n < most; offnum++)
	{
		IndexTuple	itup = hash_lookup_entry_at(page, offnum);

		if (itup == NULL || _hash_get_indextuple_hashkey(itup) != code)
			break;
		if (!base->ignore_killed || !ItemIdIsDead(PageGetItemId(page, offnum)))
			n = IndexLookupNote(base, blocks, n, &itup->t_tid);
	}
	return n;
}

IndexLookup *
HashLookupCreate(Relation index, const ScanKeyData *keys, Refusal *refusal)
{
	HashLookup *lookup;
	Oid			type = index->rd_opcintype[0];
	Oid			function = index_getprocid(index, 1, HASHSTANDARD_PROC);

	/* the access method hashes the first key, whatever others there are */
	if (OidIsValid(keys[0].sk_subtype) && keys[0].sk_subtype != type)
		function = get_opfamily_proc(index->rd_opfamily[0],
									 keys[0].sk_subtype, keys[0].sk_subtype,
									 HASHSTANDARD_PROC);
	*refusal = NOT_REFUSED;
	if (!KeyTypeIsPlain(type))
		*refusal = REFUSED_INDEX_FALLIBLE;
	else if (!OidIsValid(function) || !IsBuiltin(function))
		*refusal = REFUSED_INDEX_TYPE;
	if (*refusal != NOT_REFUSED)
		return NULL;
	lookup = palloc_object(HashLookup);
	lookup->base = (IndexLookup) {.index = index, .nkeys = 1,
								  .begin = hash_lookup_begin,
								  .look = hash_lookup_look};
	lookup->base.keys = palloc_object(ScanKeyData);
	*lookup->base.keys = keys[0];
	fmgr_info(function, &lookup->hash);
	return &lookup->base;
}
