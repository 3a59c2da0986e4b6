/*-------------------------------------------------------------------------
 *
 * pointers.c
 *		The TOAST pointers of a tuple; see pointers.h.
 *
 * The tuple may belong to a row that the query never comes to, and may be
 * damaged.  So the way from one attribute to the next is gone with a look at
 * the tuple's end before each step, and a doubt ends it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/heaptoast.h"
#include "access/htup_details.h"
#include "access/tupmacs.h"
#include "toast/pointers.h"
#include "varatt.h"

/* The bytes of a variable-length value; 0 if they cannot all be there. */
static Size
size_of_varlena(const char *value, Size left)
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
	else if (left < VARHDRSZ)
		return 0;
	else
		size = VARSIZE_4B(value);
	return size <= left ? size : 0;
}

/* The bytes of a value; 0 if they cannot all be there. */
static Size
size_of_value(int16 attlen, const char *value, Size left)
{
	if (attlen == -1)
		return size_of_varlena(value, left);
	if (attlen == -2)
	{
		Size		size = strnlen(value, left) + 1;

		return size <= left ? size : 0;
	}
	return attlen <= (int) left ? attlen : 0;
}

/* Read a pointer; false if it does not lead to the table, or to no chunk. */
static bool
read_pointer(const char *value, Oid toast_table, ToastPointer *pointer)
{
	struct varatt_external external;
	uint32		size;

	VARATT_EXTERNAL_GET_POINTER(external, value);
	size = VARATT_EXTERNAL_GET_EXTSIZE(external);
	if (external.va_toastrelid != toast_table || size == 0)
		return false;
	pointer->value = external.va_valueid;
	pointer->chunks = (size - 1) / TOAST_MAX_CHUNK_SIZE + 1;
	return true;
}

int
ToastPointersOf(const ToastPointers *wanted, HeapTupleHeader tuple, Size length)
{
	TupleDesc	desc = wanted->desc;
	const char *data = (const char *) tuple + tuple->t_hoff;
	bool		has_nulls;
	Size		size;
	Size		offset = 0;
	int			natts;
	int			n = 0;

	if (length < SizeofHeapTupleHeader ||
		(tuple->t_infomask & HEAP_HASEXTERNAL) == 0)
		return 0;
	has_nulls = (tuple->t_infomask & HEAP_HASNULL) != 0;
	natts = Min(HeapTupleHeaderGetNatts(tuple), desc->natts);
	if (tuple->t_hoff > length || tuple->t_hoff < SizeofHeapTupleHeader ||
		tuple->t_hoff != MAXALIGN(tuple->t_hoff) ||
		(has_nulls && SizeofHeapTupleHeader + BITMAPLEN(natts) > tuple->t_hoff))
		return 0;
	size = length - tuple->t_hoff;
	for (int i = 0; i < natts && n < wanted->most; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		Size		bytes;

		if (has_nulls && att_isnull(i, tuple->t_bits))
			continue;
		if (offset >= size)
			break;
		offset = att_align_pointer(offset, att->attalign, att->attlen,
								   data + offset);
		if (offset >= size)
			break;
		bytes = size_of_value(att->attlen, data + offset, size - offset);
		if (bytes == 0)
			break;
		if (att->attlen == -1 && VARATT_IS_1B_E(data + offset) &&
			read_pointer(data + offset, wanted->toast_table,
						 &wanted->array[n]))
		{
			wanted->array[n].turn = wanted->turn;
			wanted->array[n].column = att->attnum;
			n++;
		}
		offset += bytes;
	}
	return n;
}

/* The tuple of a line pointer, or NULL. */
static HeapTupleHeader
tuple_at(Page page, ItemId id)
{
	if (!ItemIdIsNormal(id) || ItemIdGetOffset(id) < SizeOfPageHeaderData ||
		ItemIdGetOffset(id) + ItemIdGetLength(id) > BLCKSZ ||
		ItemIdGetOffset(id) != MAXALIGN(ItemIdGetOffset(id)) ||
		ItemIdGetLength(id) < SizeofHeapTupleHeader)
		return NULL;
	return (HeapTupleHeader) PageGetItem(page, id);
}

/* May the query come to a tuple, as far as its hint bits tell? */
static bool
may_be_visible(const HeapTupleHeaderData *tuple)
{
	if (HeapTupleHeaderXminInvalid(tuple))
		return false;
	return (tuple->t_infomask & HEAP_XMAX_COMMITTED) == 0 ||
		HEAP_XMAX_IS_LOCKED_ONLY(tuple->t_infomask);
}

int
ToastPointersAt(const ToastPointers *wanted, Page page, OffsetNumber offset,
				ToastRowOf how)
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
		if (how == ROW_OF_CHAIN && ItemIdIsRedirected(id))
		{
			offset = ItemIdGetRedirect(id);
			continue;
		}
		tuple = tuple_at(page, id);
		if (tuple == NULL)
			break;
		if (how == ROW_IS_VISIBLE || may_be_visible(tuple))
			return ToastPointersOf(wanted, tuple, ItemIdGetLength(id));
		if (how != ROW_OF_CHAIN || !HeapTupleHeaderIsHotUpdated(tuple))
			break;
		offset = ItemPointerGetOffsetNumberNoCheck(&tuple->t_ctid);
	}
	return 0;
}
