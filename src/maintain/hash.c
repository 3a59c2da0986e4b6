/*-------------------------------------------------------------------------
 *
 * hash.c
 *		VACUUM of a hash index, with primary bucket pages read through a
 *		stream.
 *
 * Bulk deletion goes through the buckets one by one: it takes a cleanup lock on
 * the primary page of a bucket, to wait for scans of the bucket to end, and
 * leaves the bucket to hashbucketcleanup of the server.  Where the primary
 * pages are follows from the metapage alone, so these are read ahead; the
 * overflow pages of a bucket form a chain and are read as ever.
 *
 * What the stream has read ahead is pinned, and a pin keeps an insertion from
 * splitting the bucket, for which it would need a cleanup lock.  If VACUUM
 * waited for somebody else's pin meanwhile, on an open cursor's bucket for
 * instance, insertions would do without splits as long.  So VACUUM gives up all
 * that it has read ahead before it waits for a cleanup lock.
 *
 * The metapage is copied, so that nothing which happens to the relation cache
 * can touch what the stream's callback looks at.  The copy may be older than
 * the index.  That is harmless for addresses: how many overflow pages there are
 * before a bucket's splitpoint is settled before the bucket exists.  But
 * buckets may be missing, and they hold entries that were moved out of buckets
 * before those were cleaned.  So in the end, with the metapage locked against
 * further splits, their number is compared, and the stream goes on with those
 * that came along.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/hash.h"
#include "access/hash_xlog.h"
#include "access/xloginsert.h"
#include "maintain/maintain.h"
#include "miscadmin.h"
#include "observe/profile.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/* A bulk deletion in progress. */
typedef struct HashDeletion
{
	IndexVacuumInfo *info;
	IndexBulkDeleteCallback callback;
	void	   *callback_state;
	HashMetaPageData meta;		/* copy of the metapage's, perhaps outdated */
	Buffer		metabuf;		/* the metapage, pinned; or invalid */
	Sweep		sweep;			/* over the buckets */
	double		removed;		/* entries removed */
	double		left;			/* entries left, as far as counted */
} HashDeletion;

/*
 * Copy the metapage, from the relation cache or, if refresh, from the index.
 */
static void
hash_copy_metapage(HashDeletion *deletion, bool refresh)
{
	Relation	index = deletion->info->index;
	HashMetaPage cached = _hash_getcachedmetap(index, &deletion->metabuf,
											   refresh);

	deletion->meta = *cached;

	/* this is no bucket's number, and its successor is 0 */
	if (deletion->meta.hashm_maxbucket == InvalidBucket)
		ereport(ERROR,
				(errcode(ERRCODE_INDEX_CORRUPTED),
				 errmsg("index \"%s\" has an invalid number of buckets in block %u",
						RelationGetRelationName(index), HASH_METAPAGE),
				 errhint("Please REINDEX it.")));
}

/* The block of a bucket's primary page, for the sweep. */
static BlockNumber
hash_bucket_block(BlockNumber bucket, void *arg)
{
	HashMetaPage meta = &((HashDeletion *) arg)->meta;

	return BUCKET_TO_BLKNO(meta, bucket);
}

/*
 * Delete from one bucket, whose primary page is pinned, what the callback
 * wants deleted, and what the last split of the bucket has moved elsewhere.
 * Gives up the pin.
 */
static void
hash_clean_bucket(HashDeletion *deletion, Bucket bucket, BlockNumber block,
				  Buffer buffer)
{
	IndexVacuumInfo *info = deletion->info;
	HashPageOpaque opaque;
	bool		split_cleanup;

	if (!ConditionalLockBufferForCleanup(buffer))
	{
		SweepForgetAhead(&deletion->sweep);
		LockBufferForCleanup(buffer);
	}
	_hash_checkpage(info->index, buffer, LH_BUCKET_PAGE);
	opaque = HashPageGetOpaque(BufferGetPage(buffer));

	/* while a split goes on, scans of the new bucket need what it moved */
	split_cleanup = !H_BUCKET_BEING_SPLIT(opaque) &&
		H_NEEDS_SPLIT_CLEANUP(opaque);

	/*
	 * A bucket's page keeps the highest bucket number as of its last split.
	 * If our copy does not know that split, it cannot tell which entries were
	 * moved.  No other split of this bucket can begin before we are done.
	 */
	if (split_cleanup &&
		opaque->hasho_prevblkno > deletion->meta.hashm_maxbucket)
		hash_copy_metapage(deletion, true);

	hashbucketcleanup(info->index, bucket, buffer, block, info->strategy,
					  deletion->meta.hashm_maxbucket,
					  deletion->meta.hashm_highmask,
					  deletion->meta.hashm_lowmask,
					  &deletion->removed, &deletion->left, split_cleanup,
					  deletion->callback, deletion->callback_state);
	_hash_dropbuf(info->index, buffer);
}

/*
 * Set the number of entries in the metapage, which is locked, and log that.
 *		unchanged	nobody has inserted or split since the start
 *		returns		the number
 */
static double
hash_set_tuple_count(HashDeletion *deletion, bool unchanged)
{
	HashMetaPage meta = HashPageGetMeta(BufferGetPage(deletion->metabuf));
	double		count;

	/*
	 * If there were splits, entries may have been counted in two buckets; all
	 * that is certain is how many were removed.
	 */
	if (unchanged)
		count = deletion->left;
	else
		count = Max(meta->hashm_ntuples - deletion->removed, 0);

	START_CRIT_SECTION();

	meta->hashm_ntuples = count;
	MarkBufferDirty(deletion->metabuf);

	if (RelationNeedsWAL(deletion->info->index))
	{
		xl_hash_update_meta_page record;
		XLogRecPtr	end;

		record.ntuples = count;
		XLogBeginInsert();
		XLogRegisterData((char *) &record, SizeOfHashUpdateMetaPage);
		XLogRegisterBuffer(0, deletion->metabuf, REGBUF_STANDARD);
		end = XLogInsert(RM_HASH_ID, XLOG_HASH_UPDATE_META_PAGE);
		PageSetLSN(BufferGetPage(deletion->metabuf), end);
	}

	END_CRIT_SECTION();
	return count;
}

IndexBulkDeleteResult *
HashBulkDelete(ServedIndex *served, IndexVacuumInfo *info,
			   IndexBulkDeleteResult *stats, IndexBulkDeleteCallback callback,
			   void *callback_state)
{
	HashDeletion deletion = {
		.info = info,
		.callback = callback,
		.callback_state = callback_state,
		.metabuf = InvalidBuffer,
		.sweep = {.locate = hash_bucket_block},
	};
	Bucket		bucket = 0;
	Bucket		maxbucket;		/* the sweep's last */
	Bucket		first_maxbucket;
	double		first_ntuples;
	double		count;
	uint64		streamed = 0;
	Sweep	   *sweep = &deletion.sweep;

	hash_copy_metapage(&deletion, false);
	first_maxbucket = maxbucket = deletion.meta.hashm_maxbucket;
	first_ntuples = deletion.meta.hashm_ntuples;

	sweep->end = maxbucket + 1;
	sweep->arg = &deletion;
	ServedPassBegin(sweep, info);
	for (;;)
	{
		HashMetaPage meta;
		Buffer		buffer;

		while (BufferIsValid(buffer = SweepNext(sweep)))
			PROFILED_VOID(PROFILE_VACUUM_HASH,
						  hash_clean_bucket(&deletion, bucket++,
											SweepBlock(sweep), buffer));
		streamed += SweepReturned(sweep);

		if (!BufferIsValid(deletion.metabuf))
			deletion.metabuf = _hash_getbuf(info->index, HASH_METAPAGE,
											HASH_NOLOCK, LH_META_PAGE);
		LockBuffer(deletion.metabuf, BUFFER_LOCK_EXCLUSIVE);
		meta = HashPageGetMeta(BufferGetPage(deletion.metabuf));
		if (meta->hashm_maxbucket == maxbucket)
		{
			count = hash_set_tuple_count(&deletion,
										 maxbucket == first_maxbucket &&
										 meta->hashm_ntuples == first_ntuples);
			break;
		}

		/* go on with the buckets that came along */
		LockBuffer(deletion.metabuf, BUFFER_LOCK_UNLOCK);
		hash_copy_metapage(&deletion, true);
		maxbucket = deletion.meta.hashm_maxbucket;
		SweepRestart(sweep, bucket, maxbucket + 1);
	}
	_hash_relbuf(info->index, deletion.metabuf);
	ServedPassEnd(served, sweep, streamed);

	/* the number of pages is left to amvacuumcleanup */
	if (stats == NULL)
		stats = palloc0(sizeof(IndexBulkDeleteResult));
	stats->estimated_count = false;
	stats->num_index_tuples = count;
	stats->tuples_removed += deletion.removed;
	return stats;
}
