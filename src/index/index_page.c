/*-------------------------------------------------------------------------
 *
 * index_page.c
 *		Checks of a page of an index and of its tuples before they are used; see
 *		index_page.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/tupmacs.h"
#include "builtin.h"
#include "catalog/pg_type_d.h"
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

bool
BTreePageIsOfLevel(Page page, uint32 level)
{
	BTPageOpaque opaque;
	int			last;

	if (PageIsNew(page) || !IndexPageHasSpecial(page, sizeof(BTPageOpaqueData)))
		return false;
	opaque = BTPageGetOpaque(page);
	last = PageGetMaxOffsetNumber(page);
	return !P_ISMETA(opaque) && !P_IGNORE(opaque) &&
		opaque->btpo_level == level && P_ISLEAF(opaque) == (level == 0) &&
		last <= MaxIndexTuplesPerPage &&
		last + (level == 0) >= P_FIRSTDATAKEY(opaque);
}

/* Does a list of TIDs lie within its tuple? */
static inline bool
page_posting_list_fits(IndexTuple itup)
{
	Size		offset = BTreeTupleGetPostingOffset(itup);

	return offset >= sizeof(IndexTupleData) && offset == SHORTALIGN(offset) &&
		offset + (Size) BTreeTupleGetNPosting(itup) * sizeof(ItemPointerData) <=
			IndexTupleSize(itup);
}

/*
 * Do the first "natts" attributes of a tuple lie within it?  And is none of
 * them compressed?  If the compressed data were damaged, a comparison would
 * raise an error, maybe for a key that the server does not come to.
 */
static bool
page_attributes_fit(IndexTuple itup, TupleDesc tupdesc, int natts)
{
	const char *tuple = (const char *) itup;
	Size		size = IndexTupleSize(itup);
	Size		off = IndexInfoFindDataOffset(itup->t_info);
	const uint8 *nulls = (const uint8 *) (tuple + sizeof(IndexTupleData));

	if (BTreeTupleIsPosting(itup))
		size = BTreeTupleGetPostingOffset(itup);
	for (int i = 0; i < natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(tupdesc, i);

		if (off > size)
			return false;
		if (IndexTupleHasNulls(itup) && att_isnull(i, nulls))
			continue;
		if (att->attlen > 0)
			off = att_align_nominal(off, att->attalign) + att->attlen;
		else if (off == size)
			return false;
		else if (att->attlen == -1)
		{
			off = att_align_pointer(off, att->attalign, -1, tuple + off);
			if (off >= size || VARATT_IS_EXTERNAL(tuple + off) ||
				(!VARATT_IS_1B(tuple + off) &&
				 (size - off < VARHDRSZ || VARATT_IS_COMPRESSED(tuple + off) ||
				  VARSIZE_4B(tuple + off) < VARHDRSZ)))
				return false;
			off += VARSIZE_ANY(tuple + off);
		}
		else
			off += strnlen(tuple + off, size - off) + 1;
	}
	return off <= size;
}

IndexTuple
BTreeTupleAt(Relation index, Page page, OffsetNumber offnum, int natts)
{
	IndexTuple	itup = IndexTupleAt(page, offnum);

	if (itup == NULL ||
		(BTreeTupleIsPosting(itup) && !page_posting_list_fits(itup)))
		return NULL;
	if (natts == 0)
		return itup;
	if (BTreeTupleGetNAtts(itup, index) >
		IndexRelationGetNumberOfAttributes(index))
		return NULL;
	natts = Min(natts, BTreeTupleGetNAtts(itup, index));
	if (!page_attributes_fit(itup, RelationGetDescr(index), natts))
		return NULL;
	return itup;
}

bool
IndexTupleIsSound(Relation index, IndexTuple itup)
{
	TupleDesc	tupdesc = RelationGetDescr(index);

	return page_attributes_fit(itup, tupdesc, tupdesc->natts);
}

/* Their comparisons do not look into a value that is damaged. */
static const Oid infallible_types[] = {
	BOOLOID, CHAROID, NAMEOID, INT2OID, INT4OID, INT8OID, OIDOID, FLOAT4OID,
	FLOAT8OID, NUMERICOID, TEXTOID, VARCHAROID, BPCHAROID, BYTEAOID, DATEOID,
	TIMEOID, TIMETZOID, TIMESTAMPOID, TIMESTAMPTZOID, INTERVALOID, UUIDOID,
	INETOID, MACADDROID, MACADDR8OID, MONEYOID, TIDOID, XID8OID, PG_LSNOID
};

bool
TypeComparesInfallibly(Oid type)
{
	return OID_IS_AMONG(type, infallible_types);
}

bool
ColumnFunctionsAreServers(Relation index, int column)
{
	for (int i = 1; i <= index->rd_indam->amsupport; i++)
		if (!IsBuiltin(index_getprocid(index, column, i)))
			return false;
	return true;
}
