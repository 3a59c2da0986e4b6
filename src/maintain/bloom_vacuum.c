/*-------------------------------------------------------------------------
 *
 * bloom_vacuum.c
 *		VACUUM of a Bloom index, read through a stream.
 *
 * What is done to each page is what contrib/bloom does, under the same locks,
 * and with the same result, byte by byte.  One thing is cheaper: contrib
 * copies every page in order to change the copy, while here the entries to
 * delete are found first, and only a page that has some is copied.
 *
 * The page lock is exclusive from the start, although most pages may turn out
 * to have nothing to delete.  To find that out under a share lock would mean
 * to look twice, since entries can be added meanwhile; and the callback that
 * decides is to be asked once for each entry.
 *
 * Pages that are added while the sweep is under way hold nothing to delete.
 *
 * A page of another kind is skipped with a warning, where contrib would use
 * it.  A page in which contrib would read beyond the end is an error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/generic_xlog.h"
#include "index/bloom_page.h"
#include "index/index_page.h"
#include "maintain/maintain.h"
#include "observe/profile.h"
#include "storage/bufmgr.h"
#include "storage/indexfsm.h"

/* What a pass of deletion needs for each page. */
typedef struct Deletion
{
	Relation	index;
	BloomMeta	meta;			/* copy of the metapage's contents */
	Size		entry_size;
	IndexBulkDeleteCallback callback;
	void	   *callback_state;
	double		removed;		/* number of entries removed */
	int			nlist;			/* number of pages found to have room */
	BlockNumber list[BLOOM_LIST_LENGTH];
} Deletion;

/*
 * What is on a page, which is locked.  NULL if it is new, deleted, or stray; a
 * stray page is unlocked and unpinned, since to warn of it may take a while.
 */
static BloomTail *
bloom_check_page(Relation index, const BloomMeta *meta, BlockNumber block,
				 Buffer *buffer)
{
	if (unlikely(BloomPageIsStray(BufferGetPage(*buffer))))
	{
		UnlockReleaseBuffer(*buffer);
		*buffer = InvalidBuffer;
		IndexPageIsSkipped(index, block);
		return NULL;
	}
	return BloomCheckPage(index, meta, block, BufferGetPage(*buffer));
}

/*
 * Ask which entries of a page are to be deleted.
 *		doomed	is set for each entry
 *		returns how many are
 */
static int
bloom_find_doomed(Deletion *deletion, Page page, int nentries, bool *doomed)
{
	char	   *entry = PageGetContents(page);
	int			ndoomed = 0;

	for (int i = 0; i < nentries; i++, entry += deletion->entry_size)
	{
		doomed[i] = deletion->callback((ItemPointer) entry,
									   deletion->callback_state);
		if (doomed[i])
			ndoomed++;
	}
	return ndoomed;
}

/*
 * Delete entries from a page, which moves the others up, and log that.  To
 * log it wipes what lies between pd_lower and pd_upper, so pd_upper must not
 * come first; contrib does not check that.
 */
static void
bloom_delete_entries(Deletion *deletion, Buffer buffer, const bool *doomed,
					 int nleft)
{
	GenericXLogState *state = GenericXLogStart(deletion->index);
	Page		page = GenericXLogRegisterBuffer(state, buffer, 0);
	BloomTail  *tail = (BloomTail *) PageGetSpecialPointer(page);
	char	   *from = PageGetContents(page);
	char	   *to = from;

	for (int i = 0; i < tail->nentries; i++, from += deletion->entry_size)
	{
		if (doomed[i])
			continue;
		if (to != from)
			memcpy(to, from, deletion->entry_size);
		to += deletion->entry_size;
	}
	if (to - (char *) page > ((PageHeader) page)->pd_upper)
		IndexPageIsBad(deletion->index, BufferGetBlockNumber(buffer));
	tail->nentries = nleft;
	if (nleft == 0)
		tail->flags |= BLOOM_IS_DELETED;
	((PageHeader) page)->pd_lower = to - (char *) page;
	GenericXLogFinish(state);
}

/* Delete what is to be deleted from one page, which is pinned. */
static void
bloom_vacuum_page(Deletion *deletion, BlockNumber block, Buffer buffer)
{
	bool		doomed[BLOOM_MAX_ENTRIES];
	BloomTail  *tail;
	int			ndoomed;
	int			nleft;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	tail = bloom_check_page(deletion->index, &deletion->meta, block, &buffer);

	/* new and deleted pages are for the cleanup to collect */
	if (tail == NULL)
	{
		if (BufferIsValid(buffer))
			UnlockReleaseBuffer(buffer);
		return;
	}

	ndoomed = bloom_find_doomed(deletion, BufferGetPage(buffer), tail->nentries,
								doomed);
	nleft = tail->nentries - ndoomed;
	if (ndoomed > 0)
		bloom_delete_entries(deletion, buffer, doomed, nleft);
	UnlockReleaseBuffer(buffer);

	deletion->removed += ndoomed;
	if (nleft > 0 && deletion->nlist < BLOOM_LIST_LENGTH &&
		BLOOM_PAGE_SPACE - nleft * deletion->entry_size >= deletion->entry_size)
		deletion->list[deletion->nlist++] = block;
}

/*
 * Replace the metapage's list of pages with room.  It may be out of date by
 * now; an insertion looks at a page before it believes that there is room.
 */
static void
bloom_write_list(const Deletion *deletion)
{
	Buffer		buffer = ReadBuffer(deletion->index, BLOOM_META_BLOCK);
	GenericXLogState *state;
	BloomMeta  *meta;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	state = GenericXLogStart(deletion->index);
	meta = BloomCheckMeta(deletion->index,
						  GenericXLogRegisterBuffer(state, buffer, 0));
	memcpy(BLOOM_LIST(meta), deletion->list,
		   deletion->nlist * sizeof(BlockNumber));
	meta->list_start = 0;
	meta->list_end = deletion->nlist;
	GenericXLogFinish(state);
	UnlockReleaseBuffer(buffer);
}

IndexBulkDeleteResult *
BloomBulkDelete(ServedIndex *served, IndexVacuumInfo *info,
				IndexBulkDeleteResult *stats, IndexBulkDeleteCallback callback,
				void *callback_state)
{
	Deletion   *deletion = palloc0_object(Deletion);
	Sweep		sweep = {
		.first = BLOOM_META_BLOCK + 1,
		.end = RelationGetNumberOfBlocks(info->index),
	};
	Buffer		buffer;

	if (stats == NULL)
		stats = palloc0_object(IndexBulkDeleteResult);

	deletion->index = info->index;
	deletion->callback = callback;
	deletion->callback_state = callback_state;
	BloomReadMeta(info->index, &deletion->meta);
	deletion->entry_size = BloomEntrySize(&deletion->meta);

	ServedPassBegin(&sweep, info);
	while (BufferIsValid(buffer = ServedPassNext(&sweep)))
		PROFILED_VOID(PROFILE_VACUUM_BLOOM,
					  bloom_vacuum_page(deletion, SweepBlock(&sweep), buffer));
	ServedPassEnd(served, &sweep, SweepReturned(&sweep));

	bloom_write_list(deletion);
	stats->tuples_removed += deletion->removed;
	pfree(deletion);
	return stats;
}

IndexBulkDeleteResult *
BloomVacuumCleanup(ServedIndex *served, IndexVacuumInfo *info,
				   IndexBulkDeleteResult *stats)
{
	BloomMeta	meta;
	Sweep		sweep = {
		.first = BLOOM_META_BLOCK + 1,
		.end = RelationGetNumberOfBlocks(info->index),
	};
	Buffer		buffer;

	if (stats == NULL)
		stats = palloc0_object(IndexBulkDeleteResult);

	BloomReadMeta(info->index, &meta);
	stats->num_pages = sweep.end;
	stats->pages_free = 0;
	stats->num_index_tuples = 0;
	ServedPassBegin(&sweep, info);
	while (BufferIsValid(buffer = ServedPassNext(&sweep)))
	{
		BlockNumber block = SweepBlock(&sweep);
		BloomTail  *tail;

		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		tail = bloom_check_page(info->index, &meta, block, &buffer);
		if (!BufferIsValid(buffer))
			continue;
		if (tail != NULL)
			stats->num_index_tuples += tail->nentries;
		else
		{
			RecordFreeIndexPage(info->index, block);
			stats->pages_free++;
		}
		UnlockReleaseBuffer(buffer);
	}
	ServedPassEnd(served, &sweep, SweepReturned(&sweep));
	IndexFreeSpaceMapVacuum(info->index);
	return stats;
}
