/*-------------------------------------------------------------------------
 *
 * lookup.c
 *		For keys that are known early, start the reads of the pages that a
 *		look-up of each of them will need; see lookup.h.
 *
 * Pages above the leaves are nearly always cached, and are looked at one after
 * the other.  Leaf pages and heap pages are asked for, and their reads are
 * started together.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/visibilitymap.h"
#include "access/xact.h"
#include "catalog/pg_am_d.h"
#include "compat.h"
#include "index/hash_lookup.h"
#include "lookup/lookup.h"
#include "miscadmin.h"
#include "read/uncount.h"
#include "utils/rel.h"

/* The most index pages visited for one key: its levels, and steps right. */
#define MAX_STEPS 16

/* A heap block that a key has asked for. */
typedef struct WantedBlock
{
	BlockNumber block;
	LookupKey  *key;
	uint32		serial;			/* the key's serial when it was queued */
} WantedBlock;

struct Lookup
{
	Relation	heap;
	Relation	index;
	bool		index_only;
	bool		ignore_killed;
	int			most_blocks;	/* most heap blocks read ahead for one key */
	LookupShared *shared;
	BTreeLookup *btree;			/* NULL if it is a hash index */
	HashLookup *hash;

	/* pages whose read was started last, by block number modulo the size */
	int			table_size;
	PageRead   *index_pages;
	PageRead   *heap_pages;

	/* asked for, and not yet started */
	int			nleaves;
	int			leaves_size;
	LookupKey **leaves;
	int			nblocks;
	int			blocks_size;
	WantedBlock *blocks;

	bool		behind;			/* wanted reads wait for others to end */
	BlockNumber index_size;		/* blocks when last looked up, or Invalid */
	BlockNumber heap_size;
	Buffer		vm_buffer;		/* visibility map page, until LookupRead() */
	BlockNumber last_block;		/* heap block that was read ahead last */

	int			index_owed;		/* reads owed; see uncount.h */
	int			heap_owed;
	int			heap_ahead;		/* of these, for keys that are not over */
	int			heap_arrived;	/* of these, for keys whose turn it is */
	CountsBefore index_before;
	CountsBefore heap_before;
};

bool
LookupKnowsIndex(Relation index)
{
	return index->rd_rel->relam == BTREE_AM_OID ||
		index->rd_rel->relam == HASH_AM_OID;
}

/* Room for the pages whose read was started last. */
static PageRead *
make_pages(int n)
{
	PageRead   *pages = palloc_array(PageRead, n);

	for (int i = 0; i < n; i++)
		pages[i].block = InvalidBlockNumber;
	return pages;
}

Lookup *
LookupCreate(LookupShared *shared, Relation heap, Relation index, ScanKey keys,
			 int nkeys, ScanDirection direction, bool index_only,
			 int most_blocks, const char **refusal)
{
	Lookup	   *lookup = palloc0_object(Lookup);

	*refusal = NULL;
	if (index->rd_rel->relam == HASH_AM_OID)
		lookup->hash = HashLookupCreate(CurrentMemoryContext, index, keys,
										nkeys, refusal);
	else
		lookup->btree = BTreeLookupCreate(CurrentMemoryContext, index, keys,
										  nkeys, direction, refusal);
	if (*refusal != NULL)
		return NULL;
	lookup->heap = heap;
	lookup->index = index;
	lookup->index_only = index_only;
	lookup->ignore_killed = !TransactionStartedDuringRecovery();
	lookup->most_blocks = Min(most_blocks, LOOKUP_MAX_BLOCKS);
	lookup->shared = shared;
	lookup->table_size = Max(4 * shared->max_keys / Min(shared->nlookups, 16),
							 2 * Min(shared->max_reads, shared->max_keys)) + 1;
	lookup->index_pages = make_pages(lookup->table_size);
	lookup->heap_pages = make_pages(lookup->table_size);
	lookup->leaves_size = LOOKUP_MAX_BLOCKS;
	lookup->leaves = palloc_array(LookupKey *, lookup->leaves_size);
	lookup->blocks_size = LOOKUP_MAX_BLOCKS;
	lookup->blocks = palloc_array(WantedBlock, lookup->blocks_size);
	lookup->vm_buffer = InvalidBuffer;
	lookup->last_block = InvalidBlockNumber;
	lookup->index_size = lookup->heap_size = InvalidBlockNumber;
	return lookup;
}

void
LookupBegin(Lookup *lookup, LookupKey *key)
{
	*key = (LookupKey) {.stage = LOOKUP_NEW,
						.serial = ++lookup->shared->serial};
}

/* Does a page of the index or of the table exist?  Both may grow. */
static bool
page_exists(Lookup *lookup, bool of_index, BlockNumber block)
{
	BlockNumber *size = of_index ? &lookup->index_size : &lookup->heap_size;

	if (*size == InvalidBlockNumber || block >= *size)
		*size = RelationGetNumberOfBlocks(of_index ? lookup->index :
													 lookup->heap);
	return block < *size;
}

/* Note that pages were read for a key. */
static void
note_reads(Lookup *lookup, LookupKey *key, int n, bool of_heap)
{
	key->reads += n;
	if (of_heap)
	{
		key->heap_reads += n;
		lookup->heap_ahead += n;
	}
}

/*
 * Start reading a page.  If its read is in flight already, *read tells of that
 * one.  again: if the page was read ahead before, assume that it is still
 * cached, and do not look for it.  False if it cannot be started now.
 */
static bool
start_page(Lookup *lookup, Relation rel, BlockNumber block, bool again,
		   LookupKey *key, PageRead *read)
{
	bool		is_index = rel == lookup->index;
	PageRead   *table = is_index ? lookup->index_pages : lookup->heap_pages;
	PageRead   *known = &table[block % lookup->table_size];
	CountsBefore before;

	if (known->block == block && (again || !PageReadIsDone(known)))
	{
		*read = *known;
		return true;
	}
	if (!page_exists(lookup, is_index, block) ||
		(PageReadsInBackground(rel) && PageReadRoom(rel, 1) < 1))
		return false;
	before = CountsNow(rel);
	(void) PageReadStartRange(rel, block, 1, read, lookup->shared);
	(void) UncountSince(rel, &before);
	*known = *read;
	if (PageReadWasRead(read))
	{
		*(is_index ? &lookup->index_owed : &lookup->heap_owed) += 1;
		*(is_index ? &lookup->shared->counters.leaf_blocks_read :
		  &lookup->shared->counters.heap_blocks_read) += 1;
		note_reads(lookup, key, 1, !is_index);
	}
	else
		lookup->shared->counters.blocks_hit++;
	return true;
}

/*
 * Return the page that a key was waiting for, pinned.  A page that was left to
 * the kernel to prefetch is read now.
 */
static Buffer
finish_page(Lookup *lookup, LookupKey *key)
{
	Buffer		buffer = PageReadFinish(lookup->index, &key->read);

	if (!BufferIsValid(buffer) && key->read.origin == PAGE_ADVISED)
	{
		CountsBefore before = CountsNow(lookup->index);

		buffer = ReadBuffer(lookup->index, key->read.block);
		(void) UncountSince(lookup->index, &before); /* owed already */
	}
	if (!BufferIsValid(buffer))
		lookup->index_pages[key->read.block % lookup->table_size].block =
			InvalidBlockNumber;
	return buffer;
}

/* Does the server need the heap page?  Not if it is all-visible or missing. */
static bool
needs_heap_page(Lookup *lookup, LookupKey *key, BlockNumber block)
{
	CountsBefore before;
	bool		visible;
	int			reads;

	if (!page_exists(lookup, false, block))
		return false;
	if (!lookup->index_only)
		return true;
	before = CountsNow(lookup->heap);
	visible = VM_ALL_VISIBLE(lookup->heap, block, &lookup->vm_buffer);
	reads = UncountSince(lookup->heap, &before);
	lookup->heap_owed += reads;
	note_reads(lookup, key, reads, true);
	return !visible;
}

/* Queue the leaf page that a key looks at next. */
static void
want_leaf(Lookup *lookup, LookupKey *key)
{
	if (lookup->nleaves == lookup->leaves_size)
	{
		lookup->leaves_size *= 2;
		lookup->leaves = repalloc_array(lookup->leaves, LookupKey *,
									   lookup->leaves_size);
	}
	lookup->leaves[lookup->nleaves++] = key;
}

/* Queue the heap blocks that a leaf page has named. */
static void
want_blocks(Lookup *lookup, LookupKey *key, const BlockNumber *blocks, int n)
{
	if (lookup->nblocks + n > lookup->blocks_size)
	{
		lookup->blocks_size = 2 * lookup->blocks_size + n;
		lookup->blocks = repalloc_array(lookup->blocks, WantedBlock,
									   lookup->blocks_size);
	}
	for (int i = 0; i < n; i++)
		if ((lookup->nblocks == 0 ||
			 lookup->blocks[lookup->nblocks - 1].block != blocks[i]) &&
			needs_heap_page(lookup, key, blocks[i]))
			lookup->blocks[lookup->nblocks++] =
				(WantedBlock) {.block = blocks[i], .key = key,
							   .serial = key->serial};
}

/* Go on from a page that has been read. */
static void
visit_page(Lookup *lookup, LookupKey *key, ScanKey keys, Buffer buffer)
{
	BlockNumber blocks[LOOKUP_MAX_BLOCKS];
	int			n;

	key->stage = LOOKUP_LOOK;
	if (lookup->hash != NULL)
	{
		key->stage = LOOKUP_DONE;
		n = HashLookupMatches(lookup->hash, keys, buffer,
							  lookup->ignore_killed, blocks,
							  lookup->most_blocks);
		want_blocks(lookup, key, blocks, n);
		return;
	}
	if (key->place.level > 0)
	{
		if (!BTreeLookupStep(lookup->btree, keys, buffer, &key->place))
			key->stage = LOOKUP_DONE;
		return;
	}
	n = BTreeLookupMatches(lookup->btree, keys, buffer, &key->place,
						   lookup->ignore_killed, blocks, lookup->most_blocks);
	if (n == -1)
		return;
	key->stage = LOOKUP_DONE;
	want_blocks(lookup, key, blocks, n);
}

/* Find the first page for a key; false if it is not known. */
static bool
find_first_page(Lookup *lookup, LookupKey *key, ScanKey keys)
{
	if (lookup->hash == NULL)
		return BTreeLookupRoot(lookup->btree, &key->place);
	key->place = (BTreePlace) {.level = 0};
	return HashLookupBucket(lookup->hash, keys, &key->place.page);
}

void
LookupAdvance(Lookup *lookup, LookupKey *key, ScanKey keys, bool wait)
{
	if (keys == NULL)
		key->stage = LOOKUP_DONE;
	else if (key->stage == LOOKUP_NEW)
		key->stage = find_first_page(lookup, key, keys) ? LOOKUP_LOOK :
														LOOKUP_DONE;
	for (;;)
	{
		Buffer		buffer;

		CHECK_FOR_INTERRUPTS();
		if (key->stage == LOOKUP_DONE)
			return;
		if (key->stage == LOOKUP_LOOK)
		{
			if (++key->steps > MAX_STEPS)
			{
				key->stage = LOOKUP_DONE;
				return;
			}
			if (key->place.level == 0)
			{
				want_leaf(lookup, key);
				return;
			}
			if (!start_page(lookup, lookup->index, key->place.page, true, key,
							&key->read))
			{
				key->stage = LOOKUP_DONE;
				return;
			}
			key->stage = LOOKUP_READING;

			/* see to other keys while the page is being read */
			if (!PageReadIsDone(&key->read) ||
				key->read.origin == PAGE_ADVISED)
				return;
		}
		if (!wait && (!PageReadIsDone(&key->read) ||
					  key->read.origin == PAGE_ADVISED))
			return;
		buffer = finish_page(lookup, key);
		if (BufferIsValid(buffer))
		{
			visit_page(lookup, key, keys, buffer);
			ReleaseBuffer(buffer);
		}
		else
			key->stage = LOOKUP_LOOK;
	}
}

/*
 * How many of the blocks wanted, from the i-th on, follow each other and can be
 * read together?
 */
static int
run_length(Lookup *lookup, int i)
{
	const WantedBlock *wanted = &lookup->blocks[i];
	int			most = Min(lookup->nblocks - i, io_combine_limit);
	int			n = 1;

	if (!PageReadsInBackground(lookup->heap))
		return 1;
	while (n < most && wanted[n].block == wanted[0].block + n &&
		   wanted[n].key->serial == wanted[n].serial)
		n++;
	return n == 1 ? 1 : Max(1, PageReadRoom(lookup->heap, n));
}

/* Start reading adjacent heap blocks together.  Returns the number of reads. */
static int
read_run(Lookup *lookup, const WantedBlock *wanted, int n)
{
	CountsBefore before = CountsNow(lookup->heap);
	PageRead	pages[MAX_IO_COMBINE_LIMIT];
	PagesStarted started = PageReadStartRange(lookup->heap, wanted[0].block, n,
											  pages, lookup->shared);

	lookup->heap_owed += UncountSince(lookup->heap, &before);
	lookup->shared->counters.heap_blocks_read += started.blocks;
	lookup->shared->counters.blocks_hit += n - started.blocks;
	for (int i = 0; i < n; i++)
	{
		lookup->heap_pages[pages[i].block % lookup->table_size] = pages[i];
		note_reads(lookup, wanted[i].key, PageReadWasRead(&pages[i]), true);
	}
	return started.reads;
}

/* Start reading queued heap blocks; return the number of reads. */
static int
read_blocks(Lookup *lookup, int room)
{
	int			i = 0;
	int			n;

	for (; i < lookup->nblocks && room > 0; i += n)
	{
		const WantedBlock *wanted = &lookup->blocks[i];
		uint64		before = lookup->shared->counters.heap_blocks_read;
		PageRead	read;

		n = run_length(lookup, i);
		if (wanted->key->serial != wanted->serial)
			n = 1;
		else if (n > 1)
			room -= read_run(lookup, wanted, n);
		else if (start_page(lookup, lookup->heap, wanted->block, false,
							wanted->key, &read))
			room -= lookup->shared->counters.heap_blocks_read - before;
		lookup->shared->blocks +=
			lookup->shared->counters.heap_blocks_read - before;
		if (lookup->shared->counters.heap_blocks_read != before)
		{
			lookup->shared->neighbours +=
				(wanted->block == lookup->last_block + 1) + n - 1;
			lookup->last_block = wanted[n - 1].block;
		}
	}
	lookup->nblocks -= i;
	memmove(lookup->blocks, &lookup->blocks[i],
			lookup->nblocks * sizeof(WantedBlock));
	return room;
}

void
LookupRead(Lookup *lookup)
{
	int			room = lookup->shared->max_reads -
		PageReadsInFlight(lookup->shared);

	if (BufferIsValid(lookup->vm_buffer))
		ReleaseBuffer(lookup->vm_buffer);
	lookup->vm_buffer = InvalidBuffer;
	if (lookup->nblocks == 0 && lookup->nleaves == 0)
		return;
	if (PageReadsInBackground(lookup->index))
		LookaheadEnterBatch();
	room = read_blocks(lookup, room);
	lookup->behind = lookup->nblocks > 0;
	for (int i = 0; i < lookup->nleaves; i++)
	{
		LookupKey  *key = lookup->leaves[i];
		uint16		reads = key->reads;

		if (room <= 0)
		{
			key->steps--;
			lookup->behind = true;
			continue;
		}
		key->stage = start_page(lookup, lookup->index, key->place.page, true,
								key, &key->read) ?
			LOOKUP_READING : LOOKUP_DONE;
		room -= key->reads - reads;
	}
	if (PageReadsInBackground(lookup->index))
		LookaheadExitBatch();
	lookup->nleaves = 0;
}

bool
LookupIsBehind(const Lookup *lookup)
{
	return lookup->behind;
}

void
LookupForget(Lookup *lookup, LookupKey *key)
{
	lookup->heap_ahead -= key->heap_reads;
	lookup->heap_owed -= Min(lookup->heap_owed, key->heap_reads);
	lookup->shared->counters.blocks_unused += key->reads;
	*key = (LookupKey) {.stage = LOOKUP_DONE};
}

int
LookupLeftOver(const Lookup *lookup)
{
	int			wanted = lookup->heap_ahead - lookup->heap_arrived;

	return Max(0, lookup->heap_owed - wanted);
}

void
LookupPass(Lookup *lookup)
{
	int			left = LookupLeftOver(lookup);

	lookup->shared->counters.blocks_unused += left;
	lookup->heap_owed -= left;
	lookup->heap_ahead -= lookup->heap_arrived;
	lookup->heap_arrived = 0;
}

void
LookupArrive(Lookup *lookup, LookupKey *key)
{
	lookup->heap_arrived += key->heap_reads;
	key->serial = 0;
}

void
LookupCountBegin(Lookup *lookup)
{
	lookup->index_before = CountsNow(lookup->index);
	lookup->heap_before = CountsNow(lookup->heap);
}

void
LookupCountEnd(Lookup *lookup)
{
	RecountHits(lookup->index, &lookup->index_owed, &lookup->index_before);
	RecountHits(lookup->heap, &lookup->heap_owed, &lookup->heap_before);
}
