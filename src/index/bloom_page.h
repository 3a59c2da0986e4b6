/*-------------------------------------------------------------------------
 *
 * bloom_page.h
 *		The pages of a contrib/bloom index, as they lie on disk.
 *
 * contrib/bloom installs no header, so this describes its format, which has
 * been the same since PostgreSQL 9.6.
 *
 *		block 0		metapage: BloomMeta after the page header
 *		others		page header, then entries side by side without line
 *					pointers, each a heap TID and a signature of
 *					signature_words 16-bit words
 *
 * Every page that is not new ends in a BloomTail.  A page may be damaged, so
 * all fields must be checked before they are used.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_BLOOM_PAGE_H
#define PG_LOOKAHEAD_BLOOM_PAGE_H

#include "pg_config_manual.h"
#include "storage/block.h"
#include "storage/bufpage.h"
#include "storage/itemptr.h"
#include "utils/rel.h"

#define BLOOM_META_BLOCK	0

/* BloomMeta.magic, and BloomTail.page_id of every page */
#define BLOOM_MAGIC			0xDBAC0DED
#define BLOOM_TAIL_ID		0xFF83

/* BloomTail.flags */
#define BLOOM_IS_META		0x0001
#define BLOOM_IS_DELETED	0x0002

/* Limits that CREATE INDEX ... USING bloom enforces. */
#define BLOOM_WORD_BITS		16
#define BLOOM_MAX_WORDS		256
#define BLOOM_MAX_BITS		(BLOOM_MAX_WORDS * BLOOM_WORD_BITS)

/* The special area: the last eight bytes of a page. */
typedef struct BloomTail
{
	uint16		nentries;		/* entries on the page */
	uint16		flags;
	uint16		unused;
	uint16		page_id;
} BloomTail;

StaticAssertDecl(sizeof(BloomTail) == 8, "a bloom page ends in 8 bytes");

/* Bytes that a page has for entries. */
#define BLOOM_PAGE_SPACE \
	(BLCKSZ - MAXALIGN(SizeOfPageHeaderData) - MAXALIGN(sizeof(BloomTail)))

/* The contents of the metapage. */
typedef struct BloomMeta
{
	uint32		magic;
	uint16		list_start;		/* what the list below holds: elements */
	uint16		list_end;		/* list_start .. list_end - 1 */
	int32		options_len;	/* the index options, with a varlena header */
	int32		signature_words;
	int32		column_bits[INDEX_MAX_KEYS];	/* bits drawn for a value of
												 * each column */
} BloomMeta;

StaticAssertDecl(offsetof(BloomMeta, signature_words) == 12,
				 "the metapage has no gaps");

/* The rest of the metapage: a list of pages that may have room for entries. */
#define BLOOM_LIST_LENGTH \
	((BLOOM_PAGE_SPACE - MAXALIGN(sizeof(BloomMeta))) / sizeof(BlockNumber))
#define BLOOM_LIST(meta) \
	((BlockNumber *) ((char *) (meta) + sizeof(BloomMeta)))

StaticAssertDecl(sizeof(BloomMeta) == 144, "the list starts there");

/* Where the signature of an entry starts.  Entries are not aligned further. */
#define BLOOM_SIGNATURE_OFFSET	sizeof(ItemPointerData)

StaticAssertDecl(BLOOM_SIGNATURE_OFFSET == 6, "a TID takes 6 bytes");

/* The most entries that a page can have: those with the shortest signature. */
#define BLOOM_MAX_ENTRIES \
	(BLOOM_PAGE_SPACE / (BLOOM_SIGNATURE_OFFSET + sizeof(uint16)))

/* Bytes that an entry takes. */
static inline Size
BloomEntrySize(const BloomMeta *meta)
{
	return BLOOM_SIGNATURE_OFFSET + meta->signature_words * sizeof(uint16);
}

/*
 * Is a function of pg_proc the handler of contrib/bloom's access method?  It is
 * known by what it runs: its name in C, and the library that it is in.  Names
 * of access methods and functions are chosen by whoever creates them.
 */
extern bool BloomIsHandler(Oid function);

/*
 * The contents of an index's metapage, checked.  Errors: XX002 if it is not
 * valid, or if the options in it are not those of a Bloom index with the
 * relation's columns.  The caller holds a lock on the page.
 */
extern BloomMeta *BloomCheckMeta(Relation index, Page page);

/* Read the metapage, and copy its contents, checked in the same way. */
extern void BloomReadMeta(Relation index, BloomMeta *meta);

/*
 * What is on a page other than the metapage, checked: XX002 if it is no page
 * of a Bloom index, or claims more entries than it has room for.  The caller
 * holds a lock on the page.
 *		returns	the page's tail; NULL if the page is new or deleted, and so
 *				has no entries
 */
extern BloomTail *BloomCheckPage(Relation index, const BloomMeta *meta,
								 BlockNumber block, Page page);

/* Would BloomCheckPage() find no fault with a page? */
extern bool BloomPageIsSound(const BloomMeta *meta, Page page);

/*
 * Is a page an initialised one of another kind, which ends in a special area of
 * its own?  Reading that area as a BloomTail stays within the page.
 */
extern bool BloomPageIsStray(Page page);

#endif							/* PG_LOOKAHEAD_BLOOM_PAGE_H */
