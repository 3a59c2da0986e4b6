/*-------------------------------------------------------------------------
 *
 * bloom_page.c
 *		Recognising Bloom indexes, and checking their pages; see bloom_page.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am_handler.h"
#include "bloom_page.h"
#include "index_page.h"
#include "storage/bufmgr.h"

bool
BloomIsHandler(Oid function)
{
	return AmHandlerIs(function, "blhandler", "bloom") ||
		AmHandlerIs(function, "lookahead_bloom_handler", "pg_lookahead");
}

/* The special area of a page that is not new, checked. */
static BloomTail *
get_tail(Relation index, BlockNumber block, Page page)
{
	BloomTail  *tail;

	if (PageGetPageSize(page) != BLCKSZ ||
		((PageHeader) page)->pd_special != BLCKSZ - sizeof(BloomTail))
		IndexPageIsBad(index, block);
	tail = (BloomTail *) PageGetSpecialPointer(page);
	if (tail->page_id != BLOOM_TAIL_ID)
		IndexPageIsBad(index, block);
	return tail;
}

BloomMeta *
BloomCheckMeta(Relation index, Page page)
{
	BloomMeta  *meta = (BloomMeta *) PageGetContents(page);

	if (PageIsNew(page) ||
		(get_tail(index, BLOOM_META_BLOCK, page)->flags & BLOOM_IS_META) == 0 ||
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

BloomTail *
BloomCheckPage(Relation index, const BloomMeta *meta, BlockNumber block,
			   Page page)
{
	BloomTail  *tail;

	if (PageIsNew(page))
		return NULL;
	tail = get_tail(index, block, page);
	if (tail->flags & BLOOM_IS_DELETED)
		return NULL;
	if (tail->flags != 0 ||
		tail->nentries * BloomEntrySize(meta) > BLOOM_PAGE_SPACE)
		IndexPageIsBad(index, block);
	return tail;
}
