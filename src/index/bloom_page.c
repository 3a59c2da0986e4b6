/*-------------------------------------------------------------------------
 *
 * bloom_page.c
 *		Recognising Bloom indexes, and checking their pages; see bloom_page.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "index/bloom_page.h"
#include "catalog/pg_language_d.h"
#include "catalog/pg_proc.h"
#include "index/index_page.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

/* The name in C of contrib/bloom's handler, and its library. */
#define BLOOM_SYMBOL	"blhandler"
#define BLOOM_LIBRARY	"bloom"

/* A text column of a C function's pg_proc row, where it is never null. */
static char *
bloom_proc_text(HeapTuple tuple, AttrNumber column)
{
	return TextDatumGetCString(SysCacheGetAttrNotNull(PROCOID, tuple, column));
}

/* Is this the path of contrib/bloom's library, with or without its suffix? */
static bool
bloom_is_library(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *file = slash == NULL ? path : slash + 1;

	return strcmp(file, BLOOM_LIBRARY) == 0 ||
		strcmp(file, BLOOM_LIBRARY DLSUFFIX) == 0;
}

bool
BloomIsHandler(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;

	result = ((Form_pg_proc) GETSTRUCT(tuple))->prolang == ClanguageId &&
		strcmp(bloom_proc_text(tuple, Anum_pg_proc_prosrc),
			   BLOOM_SYMBOL) == 0 &&
		bloom_is_library(bloom_proc_text(tuple, Anum_pg_proc_probin));
	ReleaseSysCache(tuple);
	return result;
}

/* The special area of a page that is not new; NULL if it is not Bloom's. */
static BloomTail *
bloom_find_tail(Page page)
{
	char	   *end = (char *) page + BLCKSZ;
	BloomTail  *tail = (BloomTail *) (end - sizeof(BloomTail));

	return PageGetPageSize(page) == BLCKSZ &&
		((PageHeader) page)->pd_special == BLCKSZ - sizeof(BloomTail) &&
		tail->page_id == BLOOM_TAIL_ID ? tail : NULL;
}

bool
BloomPageIsStray(Page page)
{
	Size		special = ((PageHeader) page)->pd_special;

	if (PageIsNew(page) || special < SizeOfPageHeaderData ||
		special + sizeof(BloomTail) > BLCKSZ)
		return false;
	return PageGetPageSize(page) == BLCKSZ && bloom_find_tail(page) == NULL;
}

BloomMeta *
BloomCheckMeta(Relation index, Page page)
{
	BloomMeta  *meta = (BloomMeta *) PageGetContents(page);
	const BloomTail *tail = bloom_find_tail(page);

	if (tail == NULL || (tail->flags & BLOOM_IS_META) == 0 ||
		meta->magic != BLOOM_MAGIC || meta->signature_words < 1 ||
		meta->signature_words > BLOOM_MAX_WORDS)
		IndexPageIsBad(index, BLOOM_META_BLOCK);
	for (int i = 0; i < RelationGetNumberOfAttributes(index); i++)
		if (meta->column_bits[i] < 1 || meta->column_bits[i] >= BLOOM_MAX_BITS)
			IndexPageIsBad(index, BLOOM_META_BLOCK);
	return meta;
}

void
BloomReadMeta(Relation index, BloomMeta *meta)
{
	Buffer		buffer = ReadBuffer(index, BLOOM_META_BLOCK);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	*meta = *BloomCheckMeta(index, BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
}

bool
BloomPageIsSound(const BloomMeta *meta, Page page)
{
	const BloomTail *tail;

	if (PageIsNew(page))
		return true;
	tail = bloom_find_tail(page);
	return tail != NULL &&
		((tail->flags & BLOOM_IS_DELETED) != 0 ||
		 tail->nentries * BloomEntrySize(meta) <= BLOOM_PAGE_SPACE);
}

BloomTail *
BloomCheckPage(Relation index, const BloomMeta *meta, BlockNumber block,
			   Page page)
{
	BloomTail  *tail = bloom_find_tail(page);

	if (!BloomPageIsSound(meta, page))
		IndexPageIsBad(index, block);
	return PageIsNew(page) || tail->flags & BLOOM_IS_DELETED ? NULL : tail;
}
