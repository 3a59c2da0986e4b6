/*-------------------------------------------------------------------------
 *
 * bloom_scan.c
 *		A search in a Bloom index, read through a stream.
 *
 * Every search reads the whole index: it draws some bits for each value that is
 * sought, and returns the entries in whose signature all of them are set.  The
 * bits must be those that contrib/bloom drew when it made the entries:
 *
 * The generator is the "minimal standard" one, x' = 7^5 x mod (2^31 - 1) (S. K.
 * Park and K. W. Miller, CACM 31(10), 1988), and what it gives is x' - 1.  It
 * is started with x = s mod (2^31 - 2) + 1 for a seed s, a signed number of 32
 * bits whose remainder has its sign.  The first seed is the number of the
 * column, from 0; the second is the exclusive or of what this gives and the
 * value's hash.  Each further number, modulo the length of the signature, is a
 * bit.
 *
 * Two of all 2^32 second seeds start the generator with 0, where it stays, and
 * it gives -1 for ever.  contrib then shifts by a negative count, which sets
 * one bit or none, depending on compiler and machine.  A search for such a
 * value looks for no bit here: that finds all its entries, and the recheck
 * removes the others.
 *
 * The rest of the scan is contrib's.  Nothing of its state is touched: the keys
 * are in the part of the descriptor that all access methods share, and the
 * options are in the metapage, where they never change.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relscan.h"
#include "compat.h"
#include "index/bloom_page.h"
#include "maintain/maintain.h"
#include "observe/profile.h"
#include "storage/bufmgr.h"

/* The number of the operator classes' hash function. */
#define BLOOM_HASH_SUPPORT	1

#define GENERATOR_MODULUS	INT64CONST(2147483647)
#define GENERATOR_FACTOR	16807

/* Bits that are sought in one word of the signatures. */
typedef struct SoughtWord
{
	int			word;
	uint16		bits;
} SoughtWord;

/* What a search looks for: the words of which at least one bit is sought. */
typedef struct Sought
{
	int			nwords;
	SoughtWord	words[BLOOM_MAX_WORDS];
} Sought;

static int64
bloom_start_generator(int32 seed)
{
	return seed % (int32) (GENERATOR_MODULUS - 1) + 1;
}

/* The next number: 0 .. 2^31 - 3, or -1 from the state 0. */
static int32
bloom_draw(int64 *generator)
{
	*generator = GENERATOR_FACTOR * *generator % GENERATOR_MODULUS;
	if (*generator < 0)
		*generator += GENERATOR_MODULUS;
	return (int32) (*generator - 1);
}

/*
 * Set the bits of a value in a signature.
 *		column	from 0
 *		hash	of the value, by the column's operator class
 */
static void
bloom_set_bits(const BloomMeta *meta, uint16 *signature, int column,
			   uint32 hash)
{
	int64		generator = bloom_start_generator(column);

	hash ^= (uint32) bloom_draw(&generator);
	generator = bloom_start_generator((int32) hash);
	for (int i = 0; i < meta->column_bits[column]; i++)
	{
		int32		bit = bloom_draw(&generator);

		if (bit < 0)
			return;
		bit %= meta->signature_words * BLOOM_WORD_BITS;
		signature[bit / BLOOM_WORD_BITS] |= 1 << (bit % BLOOM_WORD_BITS);
	}
}

/*
 * What a scan's keys look for.  False if they can be met by no row: the
 * operators are strict, so a key that is null finds nothing.
 */
static bool
bloom_prepare(IndexScanDesc scan, const BloomMeta *meta, Sought *sought)
{
	Relation	index = scan->indexRelation;
	uint16		signature[BLOOM_MAX_WORDS] = {0};

	for (int i = 0; i < scan->numberOfKeys; i++)
	{
		ScanKey		key = &scan->keyData[i];
		int			column = key->sk_attno - 1;
		FmgrInfo	function;
		Datum		hash;

		if (key->sk_flags & SK_ISNULL)
			return false;

		/* what the function may keep for its next call lasts as the scan */
		fmgr_info_copy(&function,
					   index_getprocinfo(index, key->sk_attno,
										 BLOOM_HASH_SUPPORT),
					   CurrentMemoryContext);
		hash = FunctionCall1Coll(&function, index->rd_indcollation[column],
								 key->sk_argument);
		bloom_set_bits(meta, signature, column, DatumGetUInt32(hash));
	}

	sought->nwords = 0;
	for (int word = 0; word < meta->signature_words; word++)
	{
		if (signature[word] == 0)
			continue;
		sought->words[sought->nwords].word = word;
		sought->words[sought->nwords++].bits = signature[word];
	}
	return true;
}

static inline bool
bloom_matches(const Sought *sought, const uint16 *signature)
{
	for (int i = 0; i < sought->nwords; i++)
	{
		uint16		bits = sought->words[i].bits;

		if ((signature[sought->words[i].word] & bits) != bits)
			return false;
	}
	return true;
}

/* Copy the TIDs of the entries on a page that match; how many. */
static int
bloom_collect(const Sought *sought, Page page, int nentries, Size entry_size,
			  ItemPointerData *tids)
{
	const char *entry = PageGetContents(page);
	int			ntids = 0;

	for (int i = 0; i < nentries; i++, entry += entry_size)
	{
		const char *signature = entry + BLOOM_SIGNATURE_OFFSET;

		if (bloom_matches(sought, (const uint16 *) signature))
			tids[ntids++] = *(const ItemPointerData *) entry;
	}
	return ntids;
}

int64
BloomGetBitmap(IndexScanDesc scan, TIDBitmap *tbm)
{
	Relation	index = scan->indexRelation;
	BloomMeta	meta;
	Sought		sought;
	ItemPointerData tids[BLOOM_MAX_ENTRIES];
	int64		total = 0;
	Sweep		sweep = {
		.rel = index,
		.first = BLOOM_META_BLOCK + 1,
		.end = RelationGetNumberOfBlocks(index),
	};
	Buffer		buffer;

	BloomReadMeta(index, &meta);
	if (!bloom_prepare(scan, &meta, &sought))
		return 0;

	LookaheadCountIndexSearch(scan);
	SweepBegin(&sweep);
	while (BufferIsValid(buffer = SweepNext(&sweep)))
	{
		Page		page = BufferGetPage(buffer);
		BloomTail  *tail;
		int			ntids = 0;

		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		tail = BloomCheckPage(index, &meta, SweepBlock(&sweep), page);
		if (tail != NULL)
			ntids = PROFILED(PROFILE_SCAN_BLOOM,
							 bloom_collect(&sought, page, tail->nentries,
										   BloomEntrySize(&meta), tids));
		UnlockReleaseBuffer(buffer);

		/* rows are to be checked again, since bits may coincide */
		if (ntids > 0)
			tbm_add_tuples(tbm, tids, ntids, true);
		total += ntids;
	}
	SweepEnd(&sweep);
	TotalsAddStream(STREAM_USER_BLOOM,
					(StreamCounters) {.scans_served = 1,
									  .blocks = SweepReturned(&sweep)});
	return total;
}
