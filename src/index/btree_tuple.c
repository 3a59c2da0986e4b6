/*-------------------------------------------------------------------------
 *
 * btree_tuple.c
 *		A tuple of a btree page, checked before it is believed; see
 *		btree_tuple.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupmacs.h"
#include "index/btree_tuple.h"

bool
BTreeTupleFits(IndexTuple itup, TupleDesc tupdesc, int natts)
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
				 (size - off < VARHDRSZ || VARSIZE_4B(tuple + off) < VARHDRSZ)))
				return false;
			off += VARSIZE_ANY(tuple + off);
		}
		else
			off += strnlen(tuple + off, size - off) + 1;
	}
	return off <= size;
}
