/*-------------------------------------------------------------------------
 *
 * heap_row.c
 *		Rows on pages of a table that are looked at before the server comes to
 *		them; see heap_row.h.
 *
 * Before each step from one value of a tuple to the next, the end of the tuple
 * is checked.  In case of doubt, the values from there on are left out.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/tupmacs.h"
#include "early/heap_row.h"
#include "read/page_read.h"
#include "utils/rel.h"

/* The tuple of a line pointer, or NULL. */
static HeapTupleHeader
heap_row_tuple_at(Page page, ItemId id)
{
	if (!ItemIdIsNormal(id) || ItemIdGetOffset(id) < SizeOfPageHeaderData ||
		ItemIdGetOffset(id) + ItemIdGetLength(id) > BLCKSZ ||
		ItemIdGetOffset(id) != MAXALIGN(ItemIdGetOffset(id)) ||
		ItemIdGetLength(id) < SizeofHeapTupleHeader)
		return NULL;
	return (HeapTupleHeader) PageGetItem(page, id);
}

/* Has no transaction deleted or updated a tuple, as its hint bits tell? */
static inline bool
heap_row_is_unmarked(const HeapTupleHeaderData *tuple)
{
	return (tuple->t_infomask & HEAP_XMAX_INVALID) != 0 ||
		HEAP_XMAX_IS_LOCKED_ONLY(tuple->t_infomask);
}

bool
HeapRowIsLive(const HeapTupleHeaderData *tuple)
{
	return HeapTupleHeaderXminCommitted(tuple) && heap_row_is_unmarked(tuple);
}

bool
HeapRowIsOutdated(const HeapTupleHeaderData *tuple)
{
	return !heap_row_is_unmarked(tuple) && !HeapTupleHeaderIsHotUpdated(tuple);
}

/* Is this the tuple that is looked for? */
static bool
heap_row_is_found(const HeapTupleHeaderData *tuple, HeapRowHow how)
{
	switch (how)
	{
		case ROW_IS_VISIBLE:
			return true;
		case ROW_IS_LIVE:
			return HeapRowIsLive(tuple);
		default:
			return !HeapTupleHeaderXminInvalid(tuple) &&
				((tuple->t_infomask & HEAP_XMAX_COMMITTED) == 0 ||
				 HEAP_XMAX_IS_LOCKED_ONLY(tuple->t_infomask));
	}
}

bool
HeapRowAt(Page page, OffsetNumber offset, HeapRowHow how, HeapTuple row)
{
	OffsetNumber last = Min(PageGetMaxOffsetNumber(page), MaxHeapTuplesPerPage);

	/* a chain that is damaged may have no end */
	for (int i = 0; i < MaxHeapTuplesPerPage; i++)
	{
		ItemId		id;
		HeapTupleHeader tuple;

		if (offset < FirstOffsetNumber || offset > last)
			break;
		id = PageGetItemId(page, offset);
		if (how >= ROW_OF_CHAIN && ItemIdIsRedirected(id))
		{
			offset = ItemIdGetRedirect(id);
			continue;
		}
		tuple = heap_row_tuple_at(page, id);
		if (tuple == NULL)
			break;
		if (heap_row_is_found(tuple, how))
		{
			row->t_data = tuple;
			row->t_len = ItemIdGetLength(id);
			row->t_self.ip_posid = offset;
			return true;
		}
		if (how != ROW_OF_CHAIN || !HeapTupleHeaderIsHotUpdated(tuple))
			break;
		offset = ItemPointerGetOffsetNumberNoCheck(&tuple->t_ctid);
	}
	return false;
}

TupleTableSlot *
CachedRowSlot(Relation table)
{
	return MakeSingleTupleTableSlot(
		CreateTupleDescCopyConstr(RelationGetDescr(table)), &TTSOpsHeapTuple);
}

bool
CachedRowFetch(TupleTableSlot *slot, Relation table,
			   const ItemPointerData *tid, HeapRowHow how)
{
	Buffer		buffer = PageFind(table, ItemPointerGetBlockNumber(tid));
	HeapTupleData row = {.t_self = *tid, .t_tableOid = RelationGetRelid(table)};

	ExecClearTuple(slot);
	if (!BufferIsValid(buffer))
		return false;
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	if (HeapRowAt(BufferGetPage(buffer), ItemPointerGetOffsetNumber(tid), how,
				  &row))
		ExecStoreHeapTuple(heap_copytuple(&row), slot, true);
	UnlockReleaseBuffer(buffer);
	return true;
}

bool
CachedRowIsSound(Relation table, const ItemPointerData *tid,
				 const Bitmapset *read)
{
	Buffer		buffer = PageFind(table, ItemPointerGetBlockNumberNoCheck(tid));
	HeapTupleData row;
	Page		page;
	bool		sound;

	if (!BufferIsValid(buffer))
		return false;
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	sound = !TransactionIdIsValid(((PageHeader) page)->pd_prune_xid) &&
		HeapRowAt(page, ItemPointerGetOffsetNumberNoCheck(tid), ROW_IS_LIVE,
				  &row) &&
		HeapRowIsSound(RelationGetDescr(table), row.t_data, row.t_len, read);
	UnlockReleaseBuffer(buffer);
	return sound;
}

/* The bytes of a variable-length value; 0 if they cannot all be there. */
static Size
heap_row_size_of_varlena(const char *value, Size left)
{
	Size		size;

	if (left < VARHDRSZ_SHORT)
		return 0;
	if (VARATT_IS_1B_E(value))
	{
		if (left < VARHDRSZ_EXTERNAL || VARTAG_EXTERNAL(value) != VARTAG_ONDISK)
			return 0;
		size = VARHDRSZ_EXTERNAL + VARTAG_SIZE(VARTAG_ONDISK);
	}
	else if (VARATT_IS_1B(value))
		size = VARSIZE_1B(value);
	else if (left < VARHDRSZ || VARSIZE_4B(value) < VARHDRSZ)
		return 0;
	else
		size = VARSIZE_4B(value);
	return size <= left ? size : 0;
}

/* The bytes of a value; 0 if they cannot all be there. */
static Size
heap_row_size_of_value(int16 attlen, const char *value, Size left)
{
	if (attlen == -1)
		return heap_row_size_of_varlena(value, left);
	if (attlen == -2)
	{
		Size		size = strnlen(value, left) + 1;

		return size <= left ? size : 0;
	}
	return attlen <= (int) left ? attlen : 0;
}

void
HeapRowBegin(HeapRowWalk *walk, TupleDesc desc, HeapTupleHeader tuple,
			 Size length)
{
	int			natts;

	*walk = (HeapRowWalk) {.desc = desc, .tuple = tuple};
	if (length < SizeofHeapTupleHeader)
		return;
	natts = Min(HeapTupleHeaderGetNatts(tuple), desc->natts);
	if (tuple->t_hoff > length || tuple->t_hoff < SizeofHeapTupleHeader ||
		tuple->t_hoff != MAXALIGN(tuple->t_hoff) ||
		((tuple->t_infomask & HEAP_HASNULL) != 0 &&
		 SizeofHeapTupleHeader + BITMAPLEN(natts) > tuple->t_hoff))
		return;
	walk->natts = natts;
	walk->size = length - tuple->t_hoff;
	walk->is_sound = true;
}

const char *
HeapRowNextValue(HeapRowWalk *walk)
{
	const char *data = (const char *) walk->tuple + walk->tuple->t_hoff;
	const char *value;
	Form_pg_attribute att;
	Size		bytes = 0;

	while (walk->next < walk->natts &&
		   (walk->tuple->t_infomask & HEAP_HASNULL) != 0 &&
		   att_isnull(walk->next, walk->tuple->t_bits))
		walk->next++;
	if (!walk->is_sound || walk->next >= walk->natts)
		return NULL;
	att = TupleDescAttr(walk->desc, walk->next++);
	if (walk->offset < walk->size)
		walk->offset = att_align_pointer(walk->offset, att->attalign,
										 att->attlen, data + walk->offset);
	value = data + walk->offset;
	if (walk->offset < walk->size)
		bytes = heap_row_size_of_value(att->attlen, value,
									   walk->size - walk->offset);
	walk->is_sound = bytes > 0;
	walk->offset += bytes;
	return bytes > 0 ? value : NULL;
}

bool
HeapRowIsSound(TupleDesc desc, HeapTupleHeader tuple, Size length,
			   const Bitmapset *read)
{
	HeapRowWalk walk;
	const char *value;

	HeapRowBegin(&walk, desc, tuple, length);
	while ((value = HeapRowNextValue(&walk)) != NULL)
		if (TupleDescAttr(desc, walk.next - 1)->attlen == -1 &&
			HeapValueIsToasted(value) &&
			bms_is_member(walk.next - FirstLowInvalidHeapAttributeNumber, read))
			return false;
	return walk.is_sound;
}
