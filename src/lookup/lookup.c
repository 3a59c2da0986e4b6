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
#include "catalog/pg_am_d.h"
#include "compat.h"
#include "lookup/lookup.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "read/uncount.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* The most index pages visited for one key: its levels, and steps right. */
#define MAX_VISITED 16

/* A page whose read a key has asked for. */
typedef struct WantedPage
{
	BlockNumber block;
	LookupKey  *key;
	int			place;			/* of a heap block, among those of its key */
} WantedPage;

/* The pages of the index, or of the heap. */
typedef struct LookupPages
{
	Relation	rel;			/* NULL: no heap page is needed */
	BlockNumber size;			/* blocks when last looked up, or Invalid */
	PageRead   *started;		/* last reads, by block modulo the table_size */
	BlockNumber next;			/* follows the block started last */
	uint64	   *nread;			/* counter of the blocks read ahead */
	int			owed;			/* reads owed; see uncount.h */
	int			advised;		/* heap pages left to the kernel, which the
								 * server has not read yet */
	CountsBefore before;

	/* asked for, and not yet started */
	int			nwanted;
	int			wanted_size;
	WantedPage *wanted;
} LookupPages;

struct Lookup
{
	/* unchanging, but for most_blocks */
	IndexLookup *way;			/* tells the way of a key through the index */
	bool		index_only;
	int			most_blocks;	/* most heap blocks read ahead for one key */
	int			table_size;
	LookupShared *shared;
	LookupRowTest test;			/* NULL: rows are not tested */
	void	   *test_context;
	bool		one_passes;

	/* of the keys that are known */
	LookupPages index;
	LookupPages heap;
	bool		behind;			/* wanted reads wait for others to end */
	bool		holds;			/* or for neighbours */
	uint32		begun;			/* keys that were begun */
	uint32		arrived;		/* the number of the key that arrived last */
	Buffer		vm_buffer;		/* visibility map page, until LookupRead() */
	int			heap_ahead;		/* owed or advised for keys that are not over */
	int			heap_arrived;	/* of these, for keys whose turn it is */
	BlockNumber heap_last;		/* heap block that was looked at last */

	/* keys in the order of the index have a leaf page in common */
	BlockNumber leaf_last;		/* leaf page that was visited last */
	BlockNumber leaf_copied;	/* the page in "leaf", or Invalid */
	OffsetNumber leaf_near;		/* where the last key was found in it */
	PGAlignedBlock *leaf;		/* NULL: none has been copied */
};

bool
LookupKnowsIndex(Relation index)
{
	return index->rd_rel->relam == BTREE_AM_OID ||
		index->rd_rel->relam == HASH_AM_OID;
}

static void
lookup_init_pages(LookupPages *pages, Relation rel, int table_size,
				  uint64 *nread)
{
	*pages = (LookupPages) {.rel = rel, .size = InvalidBlockNumber,
							.next = InvalidBlockNumber,
							.nread = nread, .wanted_size = LOOKUP_MAX_BLOCKS};
	pages->started = palloc_array(PageRead, table_size);
	for (int i = 0; i < table_size; i++)
		pages->started[i].block = InvalidBlockNumber;
	pages->wanted = palloc_array(WantedPage, pages->wanted_size);
}

Lookup *
LookupCreate(LookupShared *shared, Relation heap, Relation index, ScanKey keys,
			 int nkeys, ScanDirection direction, bool index_only,
			 int most_blocks, Refusal *refusal)
{
	IndexLookup *way = index->rd_rel->relam == HASH_AM_OID ?
		HashLookupCreate(index, keys, refusal) :
		BTreeLookupCreate(index, keys, nkeys, direction, refusal);
	Lookup	   *lookup;

	if (way == NULL)
		return NULL;
	lookup = palloc0_object(Lookup);
	lookup->way = way;
	lookup->index_only = index_only;
	way->ignore_killed = !TransactionStartedDuringRecovery();
	LookupBound(lookup, most_blocks);
	lookup->shared = shared;
	lookup->table_size = Max(4 * shared->max_keys / Min(shared->nlookups, 16),
							 2 * Min(shared->max_reads, shared->max_keys)) + 1;
	lookup_init_pages(&lookup->index, index, lookup->table_size,
			   &shared->counters.leaf_blocks_read);
	if (most_blocks > 0)
		lookup_init_pages(&lookup->heap, heap, lookup->table_size,
				   &shared->counters.heap_blocks_read);
	lookup->vm_buffer = InvalidBuffer;
	lookup->heap_last = lookup->leaf_last = lookup->leaf_copied =
		InvalidBlockNumber;
	return lookup;
}

void
LookupBound(Lookup *lookup, int most_blocks)
{
	lookup->most_blocks = Min(most_blocks, LOOKUP_MAX_BITMAP_BLOCKS);
}

void
LookupTestRows(Lookup *lookup, LookupRowTest test, void *context,
			   bool one_passes)
{
	lookup->way->rows = palloc_array(ItemPointerData, INDEX_LOOKUP_ROWS);
	lookup->test = test;
	lookup->test_context = context;
	lookup->one_passes = one_passes;
}

/* Are the rows of keys tested? */
static inline bool
lookup_tests(const Lookup *lookup)
{
	return lookup->test != NULL && lookup->shared->tests;
}

void
LookupBegin(Lookup *lookup, LookupKey *key)
{
	*key = (LookupKey) {.stage = LOOKUP_NEW, .number = lookup->begun++};
}

void
LookupAgain(LookupKey *key)
{
	Assert(key->stage == LOOKUP_DONE);
	key->stage = LOOKUP_NEW;
	key->visited = 0;
	key->blocks = 0;
}

/* Does a page exist?  The index and the table may grow. */
static bool
lookup_page_exists(LookupPages *pages, BlockNumber block)
{
	if (pages->size == InvalidBlockNumber || block >= pages->size)
		pages->size = RelationGetNumberOfBlocks(pages->rel);
	return block < pages->size;
}

/* The read of a page, if it was started lately; else of another page. */
static inline PageRead *
lookup_last_read(Lookup *lookup, LookupPages *pages, BlockNumber block)
{
	return &pages->started[block % lookup->table_size];
}

/*
 * Was a page read ahead, and is it still being read, or believed to be cached?
 * That is believed of pages of the index, which many keys have in common, and
 * of pages that were left to the kernel, since nobody tells when it has read
 * them.
 */
static bool
lookup_is_started(Lookup *lookup, LookupPages *pages, BlockNumber block)
{
	const PageRead *read = lookup_last_read(lookup, pages, block);

	return read->block == block &&
		(pages == &lookup->index || read->origin == PAGE_ADVISED ||
		 !PageReadIsDone(read));
}

/* Note that pages were read for a key, or that the kernel will read them. */
static void
lookup_note_reads(Lookup *lookup, LookupPages *pages, LookupKey *key, int n)
{
	key->reads += n;
	if (pages == &lookup->heap)
	{
		key->heap_reads += n;
		lookup->heap_ahead += n;
	}
}

/* Start reading adjacent pages together.  Returns the number of reads. */
static int
lookup_start_pages(Lookup *lookup, LookupPages *pages,
				   const WantedPage *wanted, int n)
{
	PageRead	reads[MAX_IO_COMBINE_LIMIT];
	CountsBefore before = CountsNow(pages->rel);
	PagesStarted started = PageReadStartRange(pages->rel, wanted[0].block, n,
											  reads, lookup->shared);

	(void) UncountSince(pages->rel, &before);
	*pages->nread += started.blocks;
	pages->next = wanted[0].block + n;
	lookup->shared->counters.blocks_hit += n - started.blocks;
	for (int i = 0; i < n; i++)
	{
		*lookup_last_read(lookup, pages, reads[i].block) = reads[i];
		lookup_note_reads(lookup, pages, wanted[i].key,
						  PageReadWasRead(&reads[i]));
		if (pages == &lookup->heap && PageReadWasRead(&reads[i]) &&
			wanted[i].place < LOOKUP_MAX_BLOCKS)
			wanted[i].key->read_at |= 1 << wanted[i].place;
		pages->owed += reads[i].origin == PAGE_READ;
		pages->advised += reads[i].origin == PAGE_ADVISED;
		wanted[i].key->started += reads[i].leads;
	}
	return started.reads;
}

/*
 * Start reading the index page of a key, unless that was done for another key.
 * Returns the number of reads; the key is done if there is no such page.
 */
static int
lookup_start_index_page(Lookup *lookup, LookupKey *key)
{
	LookupPages *pages = &lookup->index;
	WantedPage	wanted = {.block = key->place.page, .key = key};
	int			reads = 0;

	if (!lookup_is_started(lookup, pages, wanted.block))
	{
		if (!lookup_page_exists(pages, wanted.block))
		{
			key->stage = LOOKUP_DONE;
			return 0;
		}
		if (PageReadsInBackground(pages->rel) &&
			PageReadRoom(pages->rel, 1) <= 0)
		{
			lookup->behind = true;	/* the key asks again */
			return 0;
		}
		reads = lookup_start_pages(lookup, pages, &wanted, 1);
	}
	key->read = *lookup_last_read(lookup, pages, wanted.block);
	key->stage = LOOKUP_READING;
	return reads;
}

/*
 * Read a page that was left to the kernel to prefetch.  If it is damaged, a key
 * ends there: the server may never come to it.
 */
static Buffer
lookup_read_advised(LookupPages *pages, LookupKey *key)
{
	CountsBefore before = CountsNow(pages->rel);
	Buffer		buffer = PageReadIfSound(pages->rel, key->read.block);
	int			reads = UncountSince(pages->rel, &before);

	if (!BufferIsValid(buffer))
		key->visited = MAX_VISITED;
	pages->owed += reads;
	pages->advised -= Min(reads, pages->advised);
	return buffer;
}

/* Return the page that a key was waiting for, pinned. */
static Buffer
lookup_finish_page(Lookup *lookup, LookupPages *pages, LookupKey *key)
{
	Buffer		buffer = PageReadFinish(pages->rel, &key->read);

	if (!BufferIsValid(buffer) && key->read.origin == PAGE_ADVISED)
		buffer = lookup_read_advised(pages, key);
	if (!BufferIsValid(buffer))
		lookup_last_read(lookup, pages, key->read.block)->block =
			InvalidBlockNumber;
	return buffer;
}

/* Does the server need the heap page?  Not if it is all-visible or missing. */
static bool
lookup_needs_heap_page(Lookup *lookup, LookupKey *key, BlockNumber block)
{
	LookupPages *pages = &lookup->heap;
	CountsBefore before;
	bool		visible;
	int			reads;

	if (!lookup_page_exists(pages, block))
		return false;
	if (!lookup->index_only)
		return true;
	before = CountsNow(pages->rel);
	visible = VM_ALL_VISIBLE(pages->rel, block, &lookup->vm_buffer);
	reads = UncountSince(pages->rel, &before);
	pages->owed += reads;
	lookup_note_reads(lookup, pages, key, reads);
	return !visible;
}

/* Queue a page of a key; place: of a heap block. */
static void
lookup_want_page(LookupPages *pages, LookupKey *key, BlockNumber block,
				 int place)
{
	if (pages->nwanted == pages->wanted_size)
	{
		/* a query may catch the error and go on */
		pages->wanted = repalloc_array(pages->wanted, WantedPage,
									   2 * pages->wanted_size);
		pages->wanted_size *= 2;
	}
	pages->wanted[pages->nwanted++] =
		(WantedPage) {.block = block, .key = key, .place = place};
}

/* Queue the heap blocks that a leaf page has named. */
static void
lookup_want_blocks(Lookup *lookup, LookupKey *key, const BlockNumber *blocks,
				   int n)
{
	BlockNumber last = InvalidBlockNumber;

	key->blocks = Max(n, 0);
	key->matches = n > 0 ? Min(lookup->way->nmatches, PG_UINT8_MAX) : 0;
	if (n > 0)
		key->match = lookup->way->match;
	for (int i = 0; i < n; i++)
	{
		int			place = key->places;

		if (blocks[i] == last ||
			!lookup_needs_heap_page(lookup, key, blocks[i]))
			continue;
		last = blocks[i];
		key->places++;
		if (last == lookup->heap_last)
			continue;
		lookup->heap_last = last;
		lookup_want_page(&lookup->heap, key, last, place);
		key->queued++;
	}
}

/* No further rows of a key are tested. */
static void
lookup_end_rows(LookupKey *key)
{
	LookupRows *rows;

	if (key->stage != LOOKUP_ROWS)
		return;
	rows = key->rows;
	key->match = rows->rows[rows->first];
	key->stage = LOOKUP_DONE;
	pfree(rows);
}

/* Queue the page of the row that is to be tested next, if there is one. */
static void
lookup_want_row(Lookup *lookup, LookupKey *key)
{
	LookupRows *rows = key->rows;
	BlockNumber block;

	if (rows->next < rows->n)
	{
		block = ItemPointerGetBlockNumberNoCheck(&rows->rows[rows->next]);
		if (lookup_page_exists(&lookup->heap, block))
		{
			lookup_want_page(&lookup->heap, key, block, key->places++);
			key->queued = 1;
			key->read.block = InvalidBlockNumber;
			return;
		}
	}
	lookup_end_rows(key);
}

/* A key's way has ended at a leaf page, which has named heap blocks. */
static void
lookup_end_way(Lookup *lookup, LookupKey *key, const BlockNumber *blocks,
			   int n)
{
	const IndexLookup *way = lookup->way;

	key->stage = LOOKUP_DONE;

	/* a bitmap scan itself reads as many pages together */
	if (lookup->most_blocks > LOOKUP_MAX_BLOCKS &&
		n >= Min(lookup->most_blocks, lookup->shared->max_reads))
		n = 0;
	if (!lookup_tests(lookup) || n <= 0 || way->nrows == 1)
	{
		lookup_want_blocks(lookup, key, blocks, n);
		return;
	}
	key->blocks = n;
	key->rows = MemoryContextAlloc(GetMemoryChunkContext(lookup),
								   offsetof(LookupRows, rows) +
								   way->nrows * sizeof(ItemPointerData));
	*key->rows = (LookupRows) {.n = way->nrows};
	memcpy(key->rows->rows, way->rows, way->nrows * sizeof(ItemPointerData));
	key->stage = LOOKUP_ROWS;
	lookup_want_row(lookup, key);
}

/* Test the rows of a page that has come, up to the last one that is needed. */
static void
lookup_test_page(Lookup *lookup, LookupKey *key, Buffer buffer)
{
	LookupRows *rows = key->rows;

	while (rows->next < rows->n &&
		   ItemPointerGetBlockNumberNoCheck(&rows->rows[rows->next]) ==
		   key->read.block)
	{
		ItemPointerData row = rows->rows[rows->next];

		if (lookup->test(lookup->test_context, buffer, &row) &&
			rows->passed++ == 0)
			rows->first = rows->next;
		rows->next++;
		if (rows->passed >= (lookup->one_passes ? 1 : lookup->most_blocks))
		{
			lookup_end_rows(key);
			return;
		}
	}
	lookup_want_row(lookup, key);
}

/* Is there something better to do than to wait for a key's page? */
static inline bool
lookup_must_wait(const LookupKey *key)
{
	return !PageReadIsDone(&key->read) || key->read.origin == PAGE_ADVISED;
}

/* Go on with the rows of a key.  A page that is gone again ends that. */
static void
lookup_advance_rows(Lookup *lookup, LookupKey *key, bool wait)
{
	Buffer		buffer = InvalidBuffer;

	if (key->queued > 0 || (!wait && lookup_must_wait(key)))
		return;
	if (key->read.block != InvalidBlockNumber)
		buffer = lookup_finish_page(lookup, &lookup->heap, key);
	if (BufferIsValid(buffer))
	{
		lookup_test_page(lookup, key, buffer);
		ReleaseBuffer(buffer);
	}
	else
		lookup_end_rows(key);
}

void
LookupForgetSizes(Lookup *lookup)
{
	LookupPages *heap = &lookup->heap;
	int			n = 0;

	lookup->index.size = heap->size = InvalidBlockNumber;
	for (int i = 0; i < heap->nwanted; i++)
		if (lookup_page_exists(heap, heap->wanted[i].block))
			heap->wanted[n++] = heap->wanted[i];
		else
			heap->wanted[i].key->queued--;
	heap->nwanted = n;
}

/* Remove a key's heap blocks from the queue. */
static void
lookup_drop_wanted(Lookup *lookup, LookupKey *key)
{
	LookupPages *heap = &lookup->heap;
	int			n = 0;

	if (key->queued == 0)
		return;
	for (int i = 0; i < heap->nwanted; i++)
		if (heap->wanted[i].key != key)
			heap->wanted[n++] = heap->wanted[i];
	heap->nwanted = n;
	key->queued = 0;
	lookup->heap_last = InvalidBlockNumber; /* it may be one of them */
}

/*
 * Copy a leaf page at which two keys have ended one after the other.  The copy
 * may be out of date later, which does no harm: it is a hint.
 */
static void
lookup_copy_leaf(Lookup *lookup, BlockNumber block, Page page)
{
	if (lookup->leaf_last == block && lookup->leaf_copied != block)
	{
		if (lookup->leaf == NULL)
			lookup->leaf = MemoryContextAlloc(GetMemoryChunkContext(lookup),
											  sizeof(PGAlignedBlock));
		memcpy(lookup->leaf->data, page, BLCKSZ);
		lookup->leaf_copied = block;
	}
	lookup->leaf_last = block;
}

void
LookupRest(Lookup *lookup)
{
	if (lookup->leaf != NULL)
		pfree(lookup->leaf);
	lookup->leaf = NULL;
	lookup->leaf_last = lookup->leaf_copied = InvalidBlockNumber;
}

Size
LookupSize(const Lookup *lookup)
{
	int			tables = lookup->heap.started != NULL ? 2 : 1;

	return sizeof(Lookup) + tables * lookup->table_size * sizeof(PageRead);
}

/* The most heap blocks that a leaf page is asked for. */
static inline int
lookup_most_blocks(const Lookup *lookup)
{
	return lookup_tests(lookup) ? LOOKUP_MAX_BLOCKS : lookup->most_blocks;
}

/* Go on from a page that has been read. */
static void
lookup_visit_page(Lookup *lookup, LookupKey *key, Buffer buffer)
{
	BlockNumber blocks[LOOKUP_MAX_BITMAP_BLOCKS];
	BlockNumber block = key->place.page;
	Page		page = BufferGetPage(buffer);
	int			n;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	n = lookup->way->look(lookup->way, page, &key->place, blocks,
						  lookup_most_blocks(lookup));
	if (n != INDEX_LOOKUP_GOES_ON)
		lookup_copy_leaf(lookup, block, page);
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	if (n != INDEX_LOOKUP_GOES_ON)
		lookup_end_way(lookup, key, blocks, n);
	else
		key->stage =
			++key->visited < MAX_VISITED ? LOOKUP_LOOK : LOOKUP_DONE;
}

/*
 * Go on from the copy of a leaf page, if the way of a key ends there.  The copy
 * is given up when a key that is begun does not.
 */
static bool
lookup_visit_copy(Lookup *lookup, LookupKey *key)
{
	BlockNumber blocks[LOOKUP_MAX_BITMAP_BLOCKS];
	IndexPlace	place = {.page = lookup->leaf_copied,
						 .is_guess = key->place.level > 0,
						 .near = lookup->leaf_near};
	int			n;

	if (place.page == InvalidBlockNumber ||
		(!place.is_guess && place.page != key->place.page))
		return false;
	n = lookup->way->look(lookup->way, lookup->leaf->data, &place, blocks,
						  lookup_most_blocks(lookup));
	if (n == INDEX_LOOKUP_GOES_ON)
	{
		lookup->leaf_copied = InvalidBlockNumber;
		return false;
	}
	lookup->leaf_near = place.near;
	lookup_end_way(lookup, key, blocks, n);
	return true;
}

void
LookupAdvance(Lookup *lookup, LookupKey *key, ScanKey keys, bool wait)
{
	bool		is_new = key->stage == LOOKUP_NEW;

	if (key->stage == LOOKUP_ROWS)
	{
		lookup_advance_rows(lookup, key, wait);
		return;
	}
	if (keys != NULL)
		IndexLookupSetArguments(lookup->way, keys);
	if (keys == NULL)
		key->stage = LOOKUP_DONE;
	else if (is_new)
		key->stage = lookup->way->begin(lookup->way, &key->place) ?
			LOOKUP_LOOK : LOOKUP_DONE;
	if (key->stage != LOOKUP_DONE && (is_new || key->place.level == 0) &&
		lookup_visit_copy(lookup, key))
		return;
	while (key->stage < LOOKUP_ROWS)
	{
		Buffer		buffer;

		CHECK_FOR_INTERRUPTS();
		if (key->stage == LOOKUP_LOOK && key->place.level == 0)
		{
			lookup_want_page(&lookup->index, key, key->place.page, 0);
			return;
		}
		if (key->stage == LOOKUP_LOOK)
		{
			(void) lookup_start_index_page(lookup, key);

			/* see to other keys while the page is being read */
			if (key->stage != LOOKUP_READING || lookup_must_wait(key))
				return;
		}
		else if (!wait && lookup_must_wait(key))
			return;
		buffer = lookup_finish_page(lookup, &lookup->index, key);
		if (BufferIsValid(buffer))
		{
			lookup_visit_page(lookup, key, buffer);
			ReleaseBuffer(buffer);
		}
		else
			key->stage =
				++key->visited < MAX_VISITED ? LOOKUP_LOOK : LOOKUP_DONE;
	}
}

/*
 * How many of the heap blocks that are wanted, from one on, follow each other
 * and can be read together?  0: the first one need not be read; -1: there is no
 * buffer for it now.
 */
static int
lookup_run_length(Lookup *lookup, const WantedPage *wanted, int most)
{
	LookupPages *heap = &lookup->heap;
	int			n = 1;

	if (lookup_is_started(lookup, heap, wanted->block))
		return 0;
	if (!PageReadsInBackground(heap->rel))
		return 1;
	while (n < Min(most, io_combine_limit) &&
		   wanted[n].block == wanted[0].block + n &&
		   !lookup_is_started(lookup, heap, wanted[n].block))
		n++;
	n = PageReadRoom(heap->rel, n);
	return n > 0 ? n : -1;
}

/*
 * May heap blocks wait for neighbours?  Not if they are the first of a run, or
 * if half of the keys that were known after theirs have had their turn.
 */
static bool
lookup_may_hold(const Lookup *lookup, const WantedPage *wanted)
{
	uint32		ahead = wanted->key->number - lookup->arrived;
	uint32		behind = lookup->begun - wanted->key->number;

	return lookup->shared->more && wanted->block == lookup->heap.next &&
		(int32) (ahead - behind) > 0 &&
		PageReadsInBackground(lookup->heap.rel);
}

/* Start reading the heap blocks that are wanted; return what room is left. */
static int
lookup_read_blocks(Lookup *lookup, int room)
{
	LookupPages *heap = &lookup->heap;
	int			done = 0;

	while (done < heap->nwanted && room > 0)
	{
		WantedPage *wanted = &heap->wanted[done];
		int			n = lookup_run_length(lookup, wanted, heap->nwanted - done);

		lookup->holds = n > 0 && n < io_combine_limit &&
			done + n == heap->nwanted && lookup_may_hold(lookup, wanted);
		if (n < 0 || lookup->holds)
			break;
		if (n > 0)
			room -= lookup_start_pages(lookup, heap, wanted, n);
		for (int i = 0; i < Max(n, 1); i++)
		{
			LookupKey  *key = wanted[i].key;

			key->queued--;
			if (key->stage == LOOKUP_ROWS)
				key->read = *lookup_last_read(lookup, heap, wanted[i].block);
		}
		done += Max(n, 1);
	}
	if (done == 0)
		return room;
	heap->nwanted -= done;
	memmove(heap->wanted, &heap->wanted[done],
			heap->nwanted * sizeof(WantedPage));
	return room;
}

void
LookupRead(Lookup *lookup)
{
	LookupPages *leaves = &lookup->index;
	int			room;

	if (BufferIsValid(lookup->vm_buffer))
		ReleaseBuffer(lookup->vm_buffer);
	lookup->vm_buffer = InvalidBuffer;
	if (lookup->heap.nwanted == 0 && leaves->nwanted == 0)
		return;
	room = lookup->shared->max_reads - PageReadsInFlight(lookup->shared);
	if (PageReadsInBackground(leaves->rel))
		LookaheadEnterBatch();
	lookup->holds = false;
	room = lookup_read_blocks(lookup, room);
	lookup->behind = lookup->heap.nwanted > 0 && !lookup->holds;
	for (int i = 0; i < leaves->nwanted; i++)
		if (room > 0)
			room -= lookup_start_index_page(lookup, leaves->wanted[i].key);
		else
			lookup->behind = true;	/* its key asks again */
	if (PageReadsInBackground(leaves->rel))
		LookaheadExitBatch();
	leaves->nwanted = 0;
}

bool
LookupIsBehind(const Lookup *lookup)
{
	return lookup->behind;
}

bool
LookupMayGoOn(const LookupShared *shared, bool wait)
{
	int			most = shared->max_reads - (shared->max_reads + 3) / 4;

	if (PageReadsInFlight(shared) <= most)
		return true;

	/* otherwise, nothing more would be started until all of them are used up */
	return wait && LookaheadReadsEndUnseen() && PageReadsWait(shared, false) &&
		PageReadsInFlight(shared) <= most;
}

bool
LookupHolds(const Lookup *lookup)
{
	return lookup->holds;
}

void
LookupStop(Lookup *lookup, LookupKey *key)
{
	lookup_drop_wanted(lookup, key);
	lookup_end_rows(key);
	key->stage = LOOKUP_DONE;
}

/* The server will not come to some heap pages that were read, or advised. */
static void
lookup_forget_pages(LookupPages *heap, int n)
{
	int			advised = Min(heap->advised, n);

	heap->advised -= advised;
	heap->owed -= Min(heap->owed, n - advised);
}

void
LookupForget(Lookup *lookup, LookupKey *key)
{
	lookup_drop_wanted(lookup, key);
	lookup_end_rows(key);
	lookup->heap_ahead -= key->heap_reads;
	lookup_forget_pages(&lookup->heap, key->heap_reads);
	lookup->shared->counters.blocks_unused += key->reads;
	*key = (LookupKey) {.stage = LOOKUP_DONE};
}

int
LookupLeftOver(const Lookup *lookup)
{
	int			wanted = lookup->heap_ahead - lookup->heap_arrived;

	return Max(0, lookup->heap.owed + lookup->heap.advised - wanted);
}

void
LookupPass(Lookup *lookup)
{
	int			left = LookupLeftOver(lookup);

	lookup->shared->counters.blocks_unused += left;
	lookup_forget_pages(&lookup->heap, left);
	lookup->heap_ahead -= lookup->heap_arrived;
	lookup->heap_arrived = 0;
}

void
LookupArrive(Lookup *lookup, LookupKey *key)
{
	lookup_drop_wanted(lookup, key);
	lookup_end_rows(key);
	if ((int32) (key->number - lookup->arrived) > 0)
		lookup->arrived = key->number;
	lookup->heap_arrived += key->heap_reads;
}

void
LookupCountBegin(Lookup *lookup)
{
	lookup->index.before = CountsNow(lookup->index.rel);
	if (lookup->heap.rel != NULL)
		lookup->heap.before = CountsNow(lookup->heap.rel);
}

int
LookupUsed(const LookupKey *key, int fetched)
{
	return key->heap_reads -
		pg_popcount32(fetched < LOOKUP_MAX_BLOCKS ?
					  key->read_at >> fetched : 0);
}

int
LookupCountEnd(Lookup *lookup, int most)
{
	LookupPages *heap = &lookup->heap;
	int			advised;
	int			owed;
	int			left;

	RecountHits(lookup->index.rel, &lookup->index.owed, &lookup->index.before);
	if (heap->rel == NULL)
		return 0;

	/* a page that was left to the kernel is read, and counted, by the server */
	if (!PageReadsInBackground(heap->rel))
		most = PG_INT32_MAX;	/* whose page it was is not known */
	advised = Min(heap->advised, most);
	advised = Min(ReadsSince(heap->rel, &heap->before), advised);
	heap->advised -= advised;
	owed = left = Min(heap->owed, most - advised);
	RecountHits(heap->rel, &left, &heap->before);
	heap->owed -= owed - left;
	return advised + owed - left;
}
