/*-------------------------------------------------------------------------
 *
 * bloom.c
 *		Bloom indexes: pgstatbloomindex.
 *
 * Each entry of a Bloom index is a signature of m bits; for a value of a
 * column with k bits, contrib/bloom draws k positions out of the m, with
 * replacement, and sets them.  A search draws the positions of the value
 * sought in the same way, and an entry is returned if all of them are set.
 * So an entry with b bits set is returned for a value it does not hold with
 * the probability (b/m)^k (B. H. Bloom, "Space/time trade-offs in hash coding
 * with allowable errors", CACM 13(7), 1970), where the positions are taken to
 * be independent and uniform.  The sweep counts how many entries have how
 * many bits set, and the rate is the mean of (b/m)^k over these: that is
 * not less than the k-th power of the mean fill, and equal to it only if all
 * entries are equally full.  A search by several columns draws for each, so
 * its rate is about the product of theirs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type_d.h"
#include "index/bloom_page.h"
#include "compat.h"
#include "inspect/inspect.h"
#include "observe/progress.h"
#include "port/pg_bitutils.h"
#include "sql_result.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/lsyscache.h"

/* The sums of a sweep, and what it needs from the metapage. */
typedef struct BloomStats
{
	BloomMeta	meta;
	int			signature_bits; /* m */
	uint64		deleted_pages;
	uint64		new_pages;
	uint64		entries;
	uint64		free_space;		/* bytes */
	uint64	   *entries_by_bits;	/* [b]: entries with b bits set, b <= m */
} BloomStats;

/* The columns of the result row. */
static const Oid columns[] = {
	INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT4OID, INT4ARRAYOID,
	FLOAT8OID, FLOAT8ARRAYOID
};

PG_FUNCTION_INFO_V1(lookahead_pgstatbloomindex);

/* Refuse all but a valid Bloom index of this session or of all. */
static void
check_relation(Relation rel)
{
	if (rel->rd_rel->relkind != RELKIND_INDEX ||
		!BloomIsHandler(rel->rd_amhandler))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("relation \"%s\" is not a bloom index",
						RelationGetRelationName(rel)),
				 InspectHintPartitions(rel)));
	InspectRefuseOtherTemp(rel, "indexes");
	InspectRefuseInvalid(rel);
}

/* Add one page other than the metapage to the sums. */
static void
count_page(void *arg, Relation rel, BlockNumber block, Page page)
{
	BloomStats *stats = arg;
	Size		entry_size = BloomEntrySize(&stats->meta);
	Size		signature_size = entry_size - BLOOM_SIGNATURE_OFFSET;
	const BloomTail *tail = BloomCheckPage(rel, &stats->meta, block, page);
	const char *signature;

	if (tail == NULL)
	{
		if (PageIsNew(page))
			stats->new_pages++;
		else
			stats->deleted_pages++;
		stats->free_space += BLOOM_PAGE_SPACE;
		return;
	}

	stats->entries += tail->nentries;
	stats->free_space += BLOOM_PAGE_SPACE - tail->nentries * entry_size;

	signature = PageGetContents(page) + BLOOM_SIGNATURE_OFFSET;
	for (int i = 0; i < tail->nentries; i++, signature += entry_size)
		stats->entries_by_bits[pg_popcount(signature, signature_size)]++;
}

/*
 * The mean over all entries of (b/m)^k, where b of an entry's m bits are set:
 * for k = 1 the mean fill, else the rate of false positives.  There must be
 * entries.
 */
static double
mean_power(const BloomStats *stats, int k)
{
	double		sum = 0;

	for (int b = 0; b <= stats->signature_bits; b++)
		if (stats->entries_by_bits[b] > 0)
			sum += stats->entries_by_bits[b] *
				pow((double) b / stats->signature_bits, k);
	return sum / stats->entries;
}

/* An array of a number type as a Datum. */
static Datum
make_array(Datum *elements, int n, Oid type)
{
	int16		typlen;
	bool		typbyval;
	char		typalign;

	get_typlenbyvalalign(type, &typlen, &typbyval, &typalign);
	return PointerGetDatum(construct_array(elements, n, type,
										   typlen, typbyval, typalign));
}

/* pgstatbloomindex(regclass) */
Datum
lookahead_pgstatbloomindex(PG_FUNCTION_ARGS)
{
	Relation	rel = InspectOpen(PG_GETARG_OID(0));
	BloomStats	stats = {0};
	BlockNumber nblocks;
	int			ncolumns;
	Datum		column_bits[INDEX_MAX_KEYS];
	Datum		rates[INDEX_MAX_KEYS];
	Datum		values[lengthof(columns)];
	bool		nulls[lengthof(columns)] = {false};
	int			i = 0;

	check_relation(rel);
	ProgressBegin("pgstatbloomindex", RelationGetRelid(rel), true);
	BloomReadMeta(rel, &stats.meta);
	stats.signature_bits = stats.meta.signature_words * BLOOM_WORD_BITS;
	stats.entries_by_bits = palloc0_array(uint64, stats.signature_bits + 1);

	nblocks = RelationGetNumberOfBlocks(rel);
	InspectPages(rel, BLOOM_META_BLOCK + 1, nblocks,
				 PROFILE_PAGE_BLOOM, count_page, &stats);

	ncolumns = RelationGetNumberOfAttributes(rel);
	for (int column = 0; column < ncolumns; column++)
	{
		int			k = stats.meta.column_bits[column];

		column_bits[column] = Int32GetDatum(k);
		rates[column] = Float8GetDatum(stats.entries == 0 ? 0.0 :
									   mean_power(&stats, k));
	}
	InspectClose(rel);

	values[i++] = Int64GetDatum((int64) nblocks);
	values[i++] = Int64GetDatum(stats.deleted_pages);
	values[i++] = Int64GetDatum(stats.new_pages);
	values[i++] = Int64GetDatum(stats.entries);
	values[i++] = Int64GetDatum(stats.free_space);
	values[i++] = Int32GetDatum(stats.signature_bits);
	values[i++] = make_array(column_bits, ncolumns, INT4OID);
	nulls[i] = nulls[i + 1] = stats.entries == 0;
	values[i++] = Float8GetDatum(stats.entries == 0 ? 0.0 :
								 mean_power(&stats, 1));
	values[i++] = make_array(rates, ncolumns, FLOAT8OID);
	return ResultRow(fcinfo, lengthof(columns), columns, values, nulls);
}
