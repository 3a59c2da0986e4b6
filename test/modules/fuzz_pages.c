/*-------------------------------------------------------------------------
 *
 * fuzz_pages.c
 *		Fuzzing of what reads pages, inside a backend.
 *
 * It is linked into a build of the extension whose code counts what it runs
 * (see tools/fuzz.py).  libFuzzer invents a page; it takes the place of one of
 * a relation's pages in shared buffers, where no page is marked dirty; then a
 * statement reads the relation, or the page is looked at ahead of a scan.  An
 * error is an answer as good as any.  A crash, a report of a sanitizer, and a
 * run that does not end are findings: libFuzzer keeps the input in a file, and
 * the backend is gone.
 *
 * An input is the number of a block, modulo the relation's blocks, in its first
 * byte, and the bytes of the page.  What it has not is zero.  Pages that the
 * server itself would not read are left out.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/hash.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_type_d.h"
#include "compat_scan.h"
#include "executor/spi.h"
#include "index/btree_children.h"
#include "index/btree_leaf.h"
#include "index/index_lookup.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

extern int LLVMFuzzerRunDriver(int *argc, char ***argv,
							   int (*test) (const uint8 *data, size_t size));

static Relation rel;
static BlockNumber nblocks;
static SPIPlanPtr statement;	/* or NULL: look at the page ahead of a scan */
static ScanKeyData keys[2];
static IndexScanDesc scan;
static IndexLookup *lookup;

/* Exchange the contents of a page with those of a buffer. */
static void
exchange(BlockNumber block, PGAlignedBlock *page)
{
	Buffer		buffer = ReadBuffer(rel, block);
	PGAlignedBlock old;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	memcpy(old.data, BufferGetPage(buffer), BLCKSZ);
	memcpy(BufferGetPage(buffer), page->data, BLCKSZ);
	memcpy(page->data, old.data, BLCKSZ);
	UnlockReleaseBuffer(buffer);
}

/* All that looks at a page of a hash index, for each value of its column. */
static void
examine_bucket(BlockNumber block)
{
	Buffer		buffer = ReadBuffer(rel, block);
	BlockNumber blocks[16];
	IndexPlace	place = {.page = block};

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	for (int value = 0; value < 20; value++)
	{
		keys[0].sk_argument = Int32GetDatum(value);
		IndexLookupSetArguments(lookup, keys);
		lookup->ignore_killed = value % 2 == 0;
		lookup->look(lookup, BufferGetPage(buffer), &place, blocks,
					 lengthof(blocks));
	}
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	ReleaseBuffer(buffer);
}

/* All that looks at a page of a btree ahead of a scan. */
static void
examine_page(BlockNumber block, BlockNumber from)
{
	static BTreeChildren children;
	BTreeLeaf  *leaf = BTreeLeafCreate(CurrentMemoryContext);
	Buffer		buffer = ReadBuffer(rel, block);
	BlockNumber blocks[16];

	for (ScanDirection dir = BackwardScanDirection; dir <= ForwardScanDirection;
		 dir += 2)
	{
		BTreeLeafInit(leaf, block);
		BTreeLeafExamine(leaf, block, buffer, scan, dir, from);
		if (BTreeChildrenBegin(&children, scan, dir, 1, true))
		{
			children.next = block;
			BTreeChildrenExamine(&children, buffer);
		}
	}
	IndexLookupSetArguments(lookup, keys);
	lookup->ignore_killed = true;
	for (int level = 0; level <= 2; level++)
	{
		IndexPlace	place;

		/* a search knows the index's version from its beginning */
		lookup->begin(lookup, &place);
		place = (IndexPlace) {block, level, from % 2 == 1};
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		lookup->look(lookup, BufferGetPage(buffer), &place, blocks,
					 lengthof(blocks));
		LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	}
	BTreeLeafDestroy(leaf);
	ReleaseBuffer(buffer);
}

/*
 * Would the server read such a page?  It checks the header, and takes a new
 * page for damaged unless it is all zeroes; see PageIsVerified().
 */
static bool
is_readable(const PGAlignedBlock *page)
{
	const PageHeaderData *header = (const PageHeaderData *) page->data;

	if (PageIsNew(page->data))
		return pg_memory_is_all_zeros(page->data, BLCKSZ);
	return (header->pd_flags & ~PD_VALID_FLAG_BITS) == 0 &&
		header->pd_lower <= header->pd_upper &&
		header->pd_upper <= header->pd_special &&
		header->pd_special <= BLCKSZ &&
		header->pd_special == MAXALIGN(header->pd_special);
}

static int
test_one_input(const uint8 *data, size_t size)
{
	static MemoryContext context = NULL;
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	PGAlignedBlock page;
	BlockNumber block;

	/* what libFuzzer is to do when the statement is cancelled */
	CHECK_FOR_INTERRUPTS();
	if (size == 0)
		return 0;
	block = data[0] % nblocks;
	memset(page.data, 0, BLCKSZ);
	memcpy(page.data, data + 1, Min(size - 1, BLCKSZ));
	if (!is_readable(&page))
		return -1;
	exchange(block, &page);
	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "fuzz_pages",
										ALLOCSET_DEFAULT_SIZES);
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		if (statement == NULL && rel->rd_rel->relam == HASH_AM_OID)
			examine_bucket(block);
		else if (statement == NULL)
			examine_page(block, data[0] / nblocks);
		else
			SPI_execute_plan(statement, NULL, NULL, true, 0);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	MemoryContextReset(context);
	CurrentResourceOwner = owner;
	SPI_freetuptable(SPI_tuptable);
	exchange(block, &page);
	return 0;
}

/*
 * fuzz_pages(relation regclass, statement text, options text[])
 *
 * statement: a query, or NULL for what looks at pages of a btree or hash index
 * ahead of a scan, for which the relation is one over an int4 column.  options:
 * of libFuzzer, and directories.
 */
PG_FUNCTION_INFO_V1(fuzz_pages);

Datum
fuzz_pages(PG_FUNCTION_ARGS)
{
	Datum	   *options;
	int			noptions;
	int			argc = 1;
	char	  **argv;

	rel = relation_open(PG_GETARG_OID(0), AccessShareLock);
	nblocks = Min(RelationGetNumberOfBlocks(rel), 255);
	deconstruct_array_builtin(PG_GETARG_ARRAYTYPE_P(2), TEXTOID, &options, NULL,
							  &noptions);
	argv = palloc0((noptions + 2) * sizeof(char *));
	argv[0] = pstrdup("fuzz_pages");
	for (int i = 0; i < noptions; i++)
		argv[argc++] = TextDatumGetCString(options[i]);
	SPI_connect();
	statement = NULL;
	if (!PG_ARGISNULL(1))
	{
		statement =
			SPI_prepare(text_to_cstring(PG_GETARG_TEXT_PP(1)), 0, NULL);
		SPI_keepplan(statement);
	}
	else if (rel->rd_rel->relam == HASH_AM_OID)
	{
		Refusal		refusal;
		Buffer		metapage = InvalidBuffer;

		/* look-ahead needs what the access method remembers of the metapage */
		_hash_getcachedmetap(rel, &metapage, false);
		if (BufferIsValid(metapage))
			ReleaseBuffer(metapage);
		ScanKeyInit(&keys[0], 1, HTEqualStrategyNumber, F_INT4EQ, 0);
		MemoryContextSwitchTo(TopMemoryContext);
		lookup = HashLookupCreate(rel, keys, &refusal);
		if (lookup == NULL)
			elog(ERROR, "no look-up: %s", RefusalSentence(refusal));
	}
	else
	{
		Oid			table = IndexGetRelation(RelationGetRelid(rel), false);
		Refusal		refusal;

		ScanKeyInit(&keys[0], 1, BTGreaterEqualStrategyNumber, F_INT4GE, 100);
		ScanKeyInit(&keys[1], 1, BTLessEqualStrategyNumber, F_INT4LE, 3000);
		scan = LOOKAHEAD_BEGIN_OWN_SCAN(table_open(table, AccessShareLock), rel,
										GetActiveSnapshot(), 2);
		index_rescan(scan, keys, 2, NULL, 0);
		/* the keys are preprocessed by the first step */
		index_getnext_tid(scan, ForwardScanDirection);
		MemoryContextSwitchTo(TopMemoryContext);
		lookup = BTreeLookupCreate(rel, keys, 2, ForwardScanDirection,
								   &refusal);
		if (lookup == NULL)
			elog(ERROR, "no look-up: %s", RefusalSentence(refusal));
	}
	PG_RETURN_INT32(LLVMFuzzerRunDriver(&argc, &argv, test_one_input));
}
