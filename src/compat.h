/*-------------------------------------------------------------------------
 *
 * compat.h
 *		Every difference between the PostgreSQL versions this extension
 *		supports.
 *
 * This is the only file in the project that may test PG_VERSION_NUM: the
 * rest is written against one vocabulary, and this header translates it for
 * each version.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_COMPAT_H
#define PG_LOOKAHEAD_COMPAT_H

#include "fmgr.h"
#include "storage/bufpage.h"
#include "storage/read_stream.h"

#if PG_VERSION_NUM < 170000
#error "pg_lookahead needs PostgreSQL 17 or later"
#endif

/*
 * PostgreSQL 17 has no asynchronous I/O and so no batches: a read stream
 * there only advises the kernel, one call per range.
 */
#if PG_VERSION_NUM < 180000
#define READ_STREAM_USE_BATCHING 0
#endif

/* 18 lets a module report its name and version (pg_get_loaded_modules()). */
#if PG_VERSION_NUM >= 180000
#define LOOKAHEAD_MODULE_MAGIC \
	PG_MODULE_MAGIC_EXT(.name = "pg_lookahead", .version = "1.0.0")
#else
#define LOOKAHEAD_MODULE_MAGIC PG_MODULE_MAGIC
#endif

/* 18 marks functions that do not return before the declaration, 17 after. */
#ifndef pg_noreturn
#define pg_noreturn pg_attribute_noreturn()
#endif

/*
 * The free space of a page in bytes, as contrib/pgstattuple of the same
 * server counts it: pgstattuple a heap page, any function an index page, and
 * pgstattuple_approx a heap page.  Until 17 it asked what a new tuple could
 * use, with its line pointer; since 18 it counts the hole in the page.
 */
static inline Size
HeapPageFreeSpace(Page page)
{
#if PG_VERSION_NUM < 180000
	return PageGetHeapFreeSpace(page);
#else
	return PageGetExactFreeSpace(page);
#endif
}

static inline Size
IndexPageFreeSpace(Page page)
{
#if PG_VERSION_NUM < 180000
	return PageGetFreeSpace(page);
#else
	return PageGetExactFreeSpace(page);
#endif
}

static inline Size
ApproxPageFreeSpace(Page page)
{
#if PG_VERSION_NUM < 180000
	if (PageIsNew(page))
		return BLCKSZ - SizeOfPageHeaderData;
#endif
	return HeapPageFreeSpace(page);
}

#endif							/* PG_LOOKAHEAD_COMPAT_H */
