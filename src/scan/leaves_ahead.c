/*-------------------------------------------------------------------------
 *
 * leaves_ahead.c
 *		The leaf pages of a btree that a scan will come to, read ahead; see
 *		leaves_ahead.h.
 *
 * The leaf pages come from a list of a parent's children.  What was started of
 * it stands in a queue, in the order of the scan, until the scan comes there.
 * Where the scan is found out to be on a page that is in neither, that page was
 * split, or the list is out of date; after a few such pages it is made anew.
 *
 * Invariants:
 * - The queue holds the leaf pages that were started and that the scan has not
 *	 come to; the first "looked" of them are known to the look at heap blocks
 *	 ahead (entries_ahead.h), which runs in front of the scan.
 * - No more reads are in flight than the table's tablespace allows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "compat.h"
#include "index/btree_children.h"
#include "miscadmin.h"
#include "scan/leaf_policy.h"
#include "scan/leaves_ahead.h"
#include "scan/scan.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/spccache.h"

/* The most leaf pages ahead. */
#define MAX_LEAVES 256

/* Start at least this many reads at once, if the distance allows it. */
#define FILL_LEAVES 16

/*
 * Where a LIMIT wants fewer leaf pages than this, none is read ahead: the scan
 * itself reads them as fast as another process can be woken to do so.
 */
#define LEAST_LEAVES 8

/* The most parent pages that are looked at for one refill. */
#define PARENTS_PER_FILL 4

/* The most parent pages that are read ahead for a series of searches. */
#define MAX_PARENTS 8

/* After so many consecutive pages that are not in it, the list is made anew. */
#define MISSES_TO_LIST 4

/*
 * Leaf pages that a scan must have visited before any is read ahead: most of
 * the scans that are abandoned are abandoned on their first page.
 */
#define LEAVES_BEFORE 2

typedef struct Leaf
{
	PageRead	page;
	bool		is_probe;		/* left out, to be read by the scan itself */
} Leaf;

/* The state of a scan while it reads ahead. */
typedef struct LeafList
{
	BTreeChildren children;
	MemoryContext mcxt;			/* for "children" and "parents" */
	bool		listed;			/* "children" has been filled */
	int			given;			/* children that were taken from the list */
	bool		is_reading;		/* the next parent page is being read */
	PageRead	reading;
	BTreeChildren parents;		/* level 1 pages of a series of searches */
	bool		has_parents;
	int			parents_given;
	int			nparents_read;	/* parent pages read and not yet looked at */
	PageRead	parents_read[MAX_PARENTS];
	int			nleaves;
	int			looked;
	Leaf		leaves[MAX_LEAVES];
} LeafList;

struct LeavesAhead
{
	const AheadNode *base;
	Relation	index;
	int			max_reads;
	int			max_leaves;
	int			leaves_before;	/* leaf pages that the scan must visit first */
	LeafPolicy *policy;			/* points to own_policy or to another scan's */
	LeafPolicy	own_policy;
	LeafList   *list;			/* NULL while nothing is read ahead */
	ScanDirection dir;
	BlockNumber page;			/* page on which the scan stands, or Invalid */
	BlockNumber nblocks;		/* blocks of the index when last looked up */
	int			misses;			/* consecutive pages that were not listed */
	int			parents_owed;	/* reads owed; see uncount.h */
	ScanCounters counters;		/* counters of leaf pages */
};

LeavesAhead *
LeavesAheadCreate(const AheadNode *base, Relation index, bool runs_to_end)
{
	int64		hits = pgBufferUsage.shared_blks_hit;
	int			concurrency =
		get_tablespace_io_concurrency(index->rd_rel->reltablespace);
	LeavesAhead *leaves;

	/* a parallel worker had to look it up in the catalogs: not counted */
	pgBufferUsage.shared_blks_hit = hits;
	if (concurrency == 0)
		return NULL;
	leaves = MemoryContextAllocZero(base->query->estate->es_query_cxt,
									sizeof(LeavesAhead));
	leaves->base = base;
	leaves->index = index;
	leaves->leaves_before = runs_to_end ? 0 : LEAVES_BEFORE;
	leaves->max_reads = LookaheadReadsInFlight(concurrency);
	leaves->max_leaves =
		Min(MAX_LEAVES, 2 * Max(leaves->max_reads, io_combine_limit));
	if (lookahead_max_distance >= 0)
		leaves->max_leaves = Min(leaves->max_leaves, lookahead_max_distance);
	leaves->page = InvalidBlockNumber;
	leaves->policy = &leaves->own_policy;
	LeafPolicyInit(leaves->policy, lookahead_debug_force,
				   (io_direct_flags & IO_DIRECT_DATA) != 0, runs_to_end);
	return leaves;
}

void
LeavesAheadShare(LeavesAhead *leaves, LeavesAhead *others)
{
	leaves->policy = others->policy;
}

bool
LeavesAheadIsActive(const LeavesAhead *leaves)
{
	return leaves->policy->mode != LEAF_WATCH ||
		(leaves->list != NULL && leaves->list->nleaves > 0);
}

bool
LeavesAheadListEnds(const LeavesAhead *leaves)
{
	const LeafList *list = leaves->list;

	return list == NULL || !list->listed ||
		(list->given >= list->children.n && list->children.ended);
}

int
LeavesAheadRoom(const LeavesAhead *leaves)
{
	int			held = leaves->list == NULL ? 0 :
		leaves->list->nleaves - leaves->list->looked;

	if (leaves->policy->mode != LEAF_AHEAD)
		return 0;
	return Min(leaves->policy->distance, leaves->max_leaves) - held;
}

/* How many of the first "n" leaf pages of the queue had to be read? */
static int
count_read(const LeafList *list, int n)
{
	int			nread = 0;

	for (int i = 0; i < n; i++)
		nread += list->leaves[i].page.origin == PAGE_READ;
	return nread;
}

/* Remove the first "n" leaf pages of the queue; return count_read() of them. */
static int
remove_first(LeafList *list, int n)
{
	int			nread = count_read(list, n);

	list->nleaves -= n;
	list->looked = Max(0, list->looked - n);
	memmove(&list->leaves[0], &list->leaves[n], list->nleaves * sizeof(Leaf));
	return nread;
}

/* Forget the list of children; it is made anew when it is wanted. */
static void
forget_children(LeavesAhead *leaves)
{
	LeafList   *list = leaves->list;

	if (list == NULL || !list->listed)
		return;
	list->listed = list->is_reading = list->has_parents = false;
	list->children.n = list->given = list->nparents_read = 0;
	MemoryContextReset(list->mcxt);
}

/* Forget the list of children and the queue of started leaf pages. */
static void
forget_list(LeavesAhead *leaves)
{
	LeafList   *list = leaves->list;

	forget_children(leaves);
	if (list != NULL)
		leaves->counters.leaf_pages_unused += remove_first(list, list->nleaves);
}

void
LeavesAheadForget(LeavesAhead *leaves)
{
	forget_list(leaves);
	if (leaves->list != NULL)
	{
		MemoryContextDelete(leaves->list->mcxt);
		pfree(leaves->list);
		leaves->list = NULL;
		leaves->base->query->memory -= sizeof(LeafList);
	}
	leaves->page = InvalidBlockNumber;
	leaves->misses = leaves->parents_owed = 0;
	LeafPolicyBegunAgain(leaves->policy);
}

ScanCounters
LeavesAheadTell(const LeavesAhead *leaves)
{
	ScanCounters counters = leaves->counters;

	if (leaves->list != NULL)
		counters.leaf_pages_unused +=
			count_read(leaves->list, leaves->list->nleaves);
	return counters;
}

void
LeavesAheadEnd(const LeavesAhead *leaves)
{
	ScanCounters counters = LeavesAheadTell(leaves);

	if (counters.leaf_reads > 0)
		TotalsAdd(&ScanTotals, &counters);
}

void
LeavesAheadWait(const LeavesAhead *leaves)
{
	(void) PageReadsWait(leaves->policy, true);
}

/* Where in the queue is a page?  -1 if it is not there. */
static int
find_leaf(const LeafList *list, BlockNumber page)
{
	for (int i = 0; i < list->nleaves; i++)
		if (list->leaves[i].page.block == page)
			return i;
	return -1;
}

bool
LeavesAheadIsReading(const LeavesAhead *leaves, BlockNumber block,
					 PageRead *page)
{
	int			i = leaves->list == NULL ? -1 : find_leaf(leaves->list, block);

	if (i < 0 || !BufferIsValid(leaves->list->leaves[i].page.buffer))
		return false;
	*page = leaves->list->leaves[i].page;
	return true;
}

void
LeavesAheadLookedAt(LeavesAhead *leaves, BlockNumber page)
{
	int			i = leaves->list == NULL ? -1 : find_leaf(leaves->list, page);

	if (i >= 0)
		leaves->list->looked = Max(leaves->list->looked, i + 1);
}

/*
 * The scan has come to a page.  Remove it, and the pages before it, from the
 * queue; return how many of them were read ahead.  *probe is set if this page
 * was left out as a probe.
 */
static int
arrive(LeavesAhead *leaves, BlockNumber page, bool *probe)
{
	LeafList   *list = leaves->list;
	int			i = find_leaf(list, page);

	leaves->misses = 0;
	if (i >= 0)
	{
		*probe = list->leaves[i].is_probe;
		return remove_first(list, i + 1);
	}

	/* the scan may have overtaken the queue */
	for (i = list->given; i < list->children.n; i++)
		if (list->children.blocks[i] == page)
		{
			list->given = i + 1;
			return remove_first(list, list->nleaves);
		}
	if (++leaves->misses >= MISSES_TO_LIST ||
		(list->nleaves == 0 && LeavesAheadListEnds(leaves)))
		forget_list(leaves);
	return 0;
}

void
LeavesAheadReadSeen(LeavesAhead *leaves)
{
	leaves->page = InvalidBlockNumber;	/* its steps were not seen */
	LeafPolicyPage(leaves->policy, -1);
	if (leaves->base->query->reads_are_slow)
		LeafPolicyIsSlow(leaves->policy);
}

void
LeavesAheadBefore(LeavesAhead *leaves, IndexScanDesc scan, ScanDirection dir,
				  LeafStep *step)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;
	const Leaf *first;

	/* the scan may have been restored to another page */
	if (BTScanPosIsValid(so->currPos) &&
		leaves->page != InvalidBlockNumber &&
		so->currPos.currPage != leaves->page)
		LeavesAheadForget(leaves);
	first = leaves->list != NULL && leaves->list->nleaves > 0 ?
		&leaves->list->leaves[0] : NULL;

	/* 18 does not time waits for a read that was started earlier */
	if (first != NULL && !first->is_probe && dir == leaves->dir)
		PageReadAbandon(leaves->index, &first->page);
	step->timed = LeafPolicyTimes(leaves->policy) ||
		(first != NULL && first->is_probe);
	step->before = CountsNow(leaves->index);
	if (step->timed)
		INSTR_TIME_SET_CURRENT(step->start);
}

/* Tell the policy of the page to which a step has come. */
static void
tell_policy(LeavesAhead *leaves, const LeafStep *step, int64 reads,
			bool others_read, bool probe)
{
	LeafPolicy *policy = leaves->policy;
	bool		watched = policy->mode == LEAF_TIME;
	double		read_us = reads == 0 && !others_read ? 0 : -1;

	if (step->timed && reads > 0)
	{
		instr_time	elapsed;

		INSTR_TIME_SET_CURRENT(elapsed);
		INSTR_TIME_SUBTRACT(elapsed, step->start);
		read_us = INSTR_TIME_GET_DOUBLE(elapsed) * 1000000.0 / reads;
	}
	if (probe)
		LeafPolicyProbed(policy, read_us > 0 ? read_us : PG_INT32_MAX);
	LeafPolicyPage(policy, read_us);
	if (watched && policy->mode == LEAF_AHEAD)
		leaves->base->query->reads_are_slow = true;
	else if (leaves->base->query->reads_are_slow)
		LeafPolicyIsSlow(policy);
	if (policy->mode != LEAF_AHEAD)
		forget_children(leaves);
}

void
LeavesAheadAfter(LeavesAhead *leaves, IndexScanDesc scan, ScanDirection dir,
				 LeafStep *step, bool ended, int *more_owed)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;
	int64		reads = ReadsSince(leaves->index, &step->before);
	BlockNumber page = BTScanPosIsValid(so->currPos) ?
		so->currPos.currPage : InvalidBlockNumber;
	bool		probe = false;
	int			owed = 0;
	int			others = *more_owed;
	int			all;
	int			own = 0;

	if (dir != leaves->dir)
		forget_list(leaves);
	leaves->dir = dir;

	/* after the last match, the scan has looked at all of its range */
	if (leaves->list != NULL && ended)
		owed = remove_first(leaves->list, leaves->list->nleaves);
	else if (leaves->list != NULL && page != leaves->page &&
			 page != InvalidBlockNumber)
		owed = arrive(leaves, page, &probe);
	/* a leaf page that was not read ahead is read by the scan itself */
	if (page != leaves->page && owed + others == 0)
		own = (int) Min(reads, 1);
	leaves->page = page;

	all = owed + others + leaves->parents_owed;
	RecountHits(leaves->index, &all, &step->before);
	all -= Min((int) reads - own, all);
	*more_owed = Min(all, others);
	leaves->parents_owed = Min(all - *more_owed, leaves->parents_owed);
	if (page != InvalidBlockNumber)
		tell_policy(leaves, step, reads, *more_owed < others, probe);
}

/* Do the leaf pages just listed follow each other on disk? */
static void
judge_order(LeavesAhead *leaves)
{
	const BTreeChildren *children = &leaves->list->children;
	int			adjacent = 0;

	if (children->n < 4)
		return;
	for (int i = 1; i < children->n; i++)
		adjacent += children->blocks[i] == children->blocks[i - 1] + 1;
	LeafPolicyOrder(leaves->policy, adjacent >= (children->n - 1) * 3 / 4);
}

/* Fill the list from a page in a pinned buffer, and release the pin. */
static void
examine(BTreeChildren *children, IndexScanDesc scan, Buffer buffer)
{
	BTreeChildrenExamine(children, buffer);
	if (BufferIsValid(buffer))
		ReleaseBuffer(buffer);
}

/* Fill the list from one page, whose read is waited for, or by one search. */
static void
examine_next(LeavesAhead *leaves, IndexScanDesc scan, BTreeChildren *children)
{
	CountsBefore before = CountsNow(leaves->index);
	Buffer		buffer = InvalidBuffer;

	if (children->next == InvalidBlockNumber)
	{
		leaves->parents_owed += BTreeChildrenSearch(children);
		return;
	}
	if (children->next < leaves->nblocks)
	{
		int			reads;

		buffer = ReadBuffer(leaves->index, children->next);
		reads = UncountSince(leaves->index, &before);
		if (children->searches)
			leaves->parents_owed += reads;
	}
	examine(children, scan, buffer);
}

/* Start to read a page of the level above the leaf pages. */
static bool
start_parent(LeavesAhead *leaves, BlockNumber block, PageRead *page)
{
	if (!PageReadStart(leaves->index, MAIN_FORKNUM, block, page,
					   leaves->policy))
		return false;
	if (leaves->list->children.searches)
		leaves->parents_owed += PageReadWasRead(page);
	return true;
}

/*
 * A series of searches visits many parent pages, each for a few leaf pages.
 * Read the parents ahead, too, as listed by the level above them.
 */
static void
fill_parents(LeavesAhead *leaves, IndexScanDesc scan)
{
	LeafList   *list = leaves->list;
	BTreeChildren *parents = &list->parents;
	int			examined = 0;

	while (list->has_parents && list->nparents_read < MAX_PARENTS)
	{
		BlockNumber block;

		CHECK_FOR_INTERRUPTS();
		if (list->parents_given >= parents->n)
		{
			/* a damaged page may follow itself */
			if (examined++ == PARENTS_PER_FILL)
				return;
			list->has_parents = !parents->ended;
			list->parents_given = 0;
			if (list->has_parents)
				examine_next(leaves, scan, parents);
			continue;
		}
		block = parents->blocks[list->parents_given++];
		if (block >= leaves->nblocks ||
			!start_parent(leaves, block,
						  &list->parents_read[list->nparents_read]))
			list->has_parents = false;
		else
			list->nparents_read++;
	}
}

/* Start to read the next parent page, unless it has been read ahead. */
static void
read_parent(LeavesAhead *leaves)
{
	LeafList   *list = leaves->list;
	BlockNumber block = list->children.next;

	for (int i = 0; i < list->nparents_read; i++)
		if (list->parents_read[i].block == block)
		{
			list->reading = list->parents_read[i];
			list->is_reading = true;
			list->nparents_read -= i + 1;
			memmove(&list->parents_read[0], &list->parents_read[i + 1],
					list->nparents_read * sizeof(PageRead));
			return;
		}
	list->is_reading = start_parent(leaves, block, &list->reading);
}

/*
 * Make sure that the list has at least one more leaf page; false if there is
 * none, or if its parent is still being read and need not be waited for.
 */
static bool
know_more(LeavesAhead *leaves, IndexScanDesc scan, bool wait)
{
	LeafList   *list = leaves->list;
	BTreeChildren *children = &list->children;

	for (int i = 0; list->given >= children->n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (children->ended || i == PARENTS_PER_FILL)
			return false;
		if (list->is_reading)
		{
			/* do not wait for it while there are leaf pages ahead */
			if ((!wait || list->nleaves > list->looked) &&
				!PageReadIsDone(&list->reading))
				return false;
			list->is_reading = false;
			examine(children, scan,
					PageReadFinish(leaves->index, &list->reading));
		}
		else
			examine_next(leaves, scan, children);
		list->given = 0;
		judge_order(leaves);
		fill_parents(leaves, scan);
		if (children->next != InvalidBlockNumber && !children->ended)
			read_parent(leaves);
	}
	return true;
}

/* Make the list of children, if there is none. */
static bool
make_list(LeavesAhead *leaves, IndexScanDesc scan, ScanDirection dir,
		  bool from_start)
{
	LeafList   *list = leaves->list;
	MemoryContext old;

	if (list == NULL)
	{
		MemoryContext query = leaves->base->query->estate->es_query_cxt;

		list = MemoryContextAllocZero(query, sizeof(LeafList));
		list->mcxt = AllocSetContextCreate(query, "look-ahead leaf pages",
										   ALLOCSET_SMALL_SIZES);
		leaves->list = list;
		leaves->base->query->memory += sizeof(LeafList);
	}
	if (list->listed)
		return true;
	list->given = list->children.n = 0;
	leaves->dir = dir;
	leaves->misses = 0;
	leaves->nblocks = RelationGetNumberOfBlocks(leaves->index);
	old = MemoryContextSwitchTo(list->mcxt);
	list->listed =
		BTreeChildrenBegin(&list->children, scan, dir, 1, from_start);
	list->parents_given = 0;
	list->has_parents = list->listed && list->children.narrays > 0 &&
		BTreeChildrenBegin(&list->parents, scan, dir, 2, from_start);
	list->parents.n = 0;
	MemoryContextSwitchTo(old);
	if (!list->listed)
		MemoryContextReset(list->mcxt);
	return list->listed;
}

static int
compare_leaves(const void *a, const void *b)
{
	BlockNumber one = (*(Leaf *const *) a)->page.block;
	BlockNumber other = (*(Leaf *const *) b)->page.block;

	return one < other ? -1 : one > other;
}

/* Start reading the last "n" leaf pages of the queue, neighbours together. */
static void
start_reads(LeavesAhead *leaves, int n)
{
	Relation	index = leaves->index;
	LeafList   *list = leaves->list;
	bool		background = PageReadsInBackground(index);
	CountsBefore before = CountsNow(index);
	PagesStarted sum = {0};
	Leaf	   *sorted[MAX_LEAVES];
	int			nsorted = 0;

	for (int i = list->nleaves - n; i < list->nleaves; i++)
		if (!list->leaves[i].is_probe)
			sorted[nsorted++] = &list->leaves[i];
	qsort(sorted, nsorted, sizeof(Leaf *), compare_leaves);
	TotalsAttach(&ScanTotals);			/* to count them at the end */

	/* an error in between leaves batch mode at the end of the transaction */
	if (background)
		LookaheadEnterBatch();
	for (int i = 0, run; i < nsorted; i += run)
	{
		PageRead	pages[MAX_IO_COMBINE_LIMIT];
		BlockNumber first = sorted[i]->page.block;
		PagesStarted started;

		run = 1;
		while (i + run < nsorted && run < io_combine_limit &&
			   sorted[i + run]->page.block == first + run)
			run++;
		started = PageReadStartRange(index, first, run, pages, leaves->policy);
		for (int j = 0; j < run; j++)
			sorted[i + j]->page = pages[j];
		sum.reads += started.reads;
		sum.blocks += started.blocks;
	}
	if (background)
		LookaheadExitBatch();

	/* they are counted when the scan comes there */
	(void) UncountSince(index, &before);
	leaves->counters.leaf_pages_read += sum.blocks;
	leaves->counters.leaf_reads += sum.reads;
	LeafPolicyStarted(leaves->policy, sum.reads, nsorted - sum.blocks,
					  sum.blocks);
}

/* Read at most "wanted" more leaf pages ahead; wait: for their parents. */
static void
fill(LeavesAhead *leaves, IndexScanDesc scan, int wanted, bool wait)
{
	LeafList   *list = leaves->list;
	bool		background = PageReadsInBackground(leaves->index);
	int			room = leaves->max_reads - PageReadsInFlight(leaves->policy);
	BlockNumber before = InvalidBlockNumber;
	int			run = 0;
	int			n = 0;
	int			passed_over = 0;

	wanted = Min(wanted, MAX_LEAVES - list->nleaves);
	if (background)
		wanted = PageReadRoom(leaves->index, wanted);
	while (n < wanted && know_more(leaves, scan, wait) &&
		   leaves->policy->mode == LEAF_AHEAD)
	{
		BlockNumber block = list->children.blocks[list->given];
		Leaf	   *leaf = &list->leaves[list->nleaves];

		if (block >= leaves->nblocks)
			leaves->nblocks = RelationGetNumberOfBlocks(leaves->index);
		if (block >= leaves->nblocks || block == leaves->page ||
			find_leaf(list, block) >= 0)
		{
			/* damaged parents may lead to the same pages again and again */
			if (passed_over++ > MAX_LEAVES)
				break;
			list->given++;
			continue;
		}
		if (n == 0 || run == io_combine_limit ||
			(block != before + 1 && block + 1 != before))
		{
			if (room-- <= 0)
				break;
			run = 0;
		}
		run++;
		before = block;
		leaf->page = (PageRead) {.block = block, .origin = PAGE_FOUND};
		leaf->is_probe = leaves->policy->probe;
		leaves->policy->probe = false;
		list->given++;
		list->nleaves++;
		n++;
	}
	if (n > 0)
		start_reads(leaves, n);
	if (leaves->policy->mode != LEAF_AHEAD)
		forget_children(leaves);
}

/*
 * How many leaf pages after the scan's own hold so many rows, if each of them
 * holds as many matches as its own?
 */
static int
leaves_of_rows(IndexScanDesc scan, ScanDirection dir, int64 rows)
{
	BTScanPos	pos = &((BTScanOpaque) scan->opaque)->currPos;
	int			matches = Max(1, pos->lastItem - pos->firstItem + 1);
	int			left = ScanDirectionIsForward(dir) ?
		pos->lastItem - pos->itemIndex : pos->itemIndex - pos->firstItem;
	int64		wanted = (rows - left + matches - 1) / matches;

	return (int) Max(0, Min(wanted, MAX_LEAVES));
}

void
LeavesAheadFill(LeavesAhead *leaves, IndexScanDesc scan, ScanDirection dir,
				int64 rows)
{
	int			wanted = LeavesAheadRoom(leaves);
	int			distance = Min(leaves->policy->distance, leaves->max_leaves);

	if (wanted <= 0 || leaves->policy->visited < leaves->leaves_before ||
		!BTScanPosIsValid(((BTScanOpaque) scan->opaque)->currPos))
		return;
	if (rows < PG_INT64_MAX)
	{
		int			most = leaves_of_rows(scan, dir, rows);
		int			least = leaves->list == NULL ? LEAST_LEAVES : 2;

		if (most < least && !leaves->policy->forced)
			return;
		if (leaves->list != NULL)
			wanted = Min(wanted, most - leaves->list->nleaves);
		else
			wanted = Min(wanted, most);
	}
	else if (wanted < Min(FILL_LEAVES, distance / 2))
		return;
	if (wanted > 0 && make_list(leaves, scan, dir, false))
		fill(leaves, scan, wanted, true);
}

int
LeavesAheadFillAtStart(LeavesAhead *leaves, IndexScanDesc scan, int most)
{
	if (most > 0 && leaves->policy->mode == LEAF_AHEAD &&
		make_list(leaves, scan, ForwardScanDirection, true))
		fill(leaves, scan, most, false);
	if (leaves->list == NULL)
		return 0;
	return leaves->list->nleaves + leaves->list->is_reading;
}

#if LOOKAHEAD_HAVE_EXPLAIN_HOOK

#include "commands/explain_format.h"
#include "commands/explain_state.h"

void
LeavesAheadExplain(const ScanCounters *counters, ExplainState *es)
{
	if (es->format == EXPLAIN_FORMAT_TEXT)
	{
		appendStringInfo(es->str,
						 "leaf pages read=" UINT64_FORMAT
						 " unused=" UINT64_FORMAT "  reads=" UINT64_FORMAT,
						 counters->leaf_pages_read,
						 counters->leaf_pages_unused, counters->leaf_reads);
		return;
	}
	ExplainPropertyUInteger("Look-Ahead Leaf Pages Read", NULL, counters->leaf_pages_read, es);
	ExplainPropertyUInteger("Look-Ahead Leaf Pages Unused", NULL, counters->leaf_pages_unused, es);
	ExplainPropertyUInteger("Look-Ahead Leaf Reads", NULL, counters->leaf_reads, es);
}

#endif
