/*-------------------------------------------------------------------------
 *
 * compat.h
 *		Every difference between the PostgreSQL versions this extension
 *		supports.
 *
 * This file and compat_scan.h are the only ones in the project that may test
 * PG_VERSION_NUM: the rest is written against one vocabulary, and these headers
 * translate it for each version.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_COMPAT_H
#define PG_LOOKAHEAD_COMPAT_H

#include "access/amapi.h"
#include "access/genam.h"
#include "access/heapam.h"
#include "access/nbtree.h"
#include "access/relscan.h"
#include "commands/vacuum.h"
#include "fmgr.h"
#include "pgstat.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/fd.h"
#include "storage/read_stream.h"
#include "portability/instr_time.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/rel.h"
#if PG_VERSION_NUM >= 180000
#include "storage/aio.h"
#endif

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

/* Changes of a subscription are looked up where reads are in the background. */
#if PG_VERSION_NUM >= 180000
#define LOOKAHEAD_HAS_APPLY
#endif

/* The version of the server's headers as a number: 180006 is 18.6. */
#ifndef LOOKAHEAD_BUILT_FOR
#define LOOKAHEAD_BUILT_FOR PG_VERSION_NUM
#endif

/* 18 lets a module report its name and version (pg_get_loaded_modules()). */
#if PG_VERSION_NUM >= 180000
#define LOOKAHEAD_MODULE_MAGIC \
	PG_MODULE_MAGIC_EXT(.name = "pg_lookahead", .version = LOOKAHEAD_VERSION)
#else
#define LOOKAHEAD_MODULE_MAGIC PG_MODULE_MAGIC
#endif

/* 18 marks functions that do not return before the declaration, 17 after. */
#ifndef pg_noreturn
#define pg_noreturn pg_attribute_noreturn()
#endif

/* 19 has both names, 20 has only the first one. */
#ifndef pg_always_inline
#define pg_always_inline pg_attribute_always_inline
#endif

/*
 * One of a relation's pending counts, which statistics views will show:
 * numscans, tuples_returned, blocks_fetched or blocks_hit.  Not to be used
 * before pgstat_should_count_relation() has returned true.  Since 20 indexes
 * have counts of their own, in other places than those of tables.
 */
#if PG_VERSION_NUM >= 200000
#define LOOKAHEAD_COUNT(rel, field) \
	(*((rel)->pgstat_info->kind == PGSTAT_KIND_INDEX ? \
		   &(rel)->pgstat_info->idx.field : \
		   &(rel)->pgstat_info->tab.counts.field))
#else
#define LOOKAHEAD_COUNT(rel, field) ((rel)->pgstat_info->counts.field)
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

/* Does a page pass the checks of one that is read?  Reports nothing. */
static inline bool
LookaheadPageIsVerified(char *page, BlockNumber block)
{
#if PG_VERSION_NUM >= 180000
	bool		checksum_failed;

	return PageIsVerified((PageData *) page, block, 0, &checksum_failed);
#else
	return PageIsVerifiedExtended((Page) page, block, 0);
#endif
}

/* Do reads run in the background on this server, or in their caller only? */
static inline bool
LookaheadReadsAreAsync(void)
{
#if PG_VERSION_NUM >= 180000
	return io_method != IOMETHOD_SYNC;
#else
	return false;
#endif
}

/*
 * May reads into shared buffers, or local ones, be left to run by themselves?
 * Not if damaged pages are to be let pass: then each is reported as a warning
 * of the statement that reads it, and we raise none.  Other processes cannot
 * read into local buffers.
 */
static inline bool
LookaheadReadsMayRun(bool local)
{
#if PG_VERSION_NUM >= 180000
	return io_method != IOMETHOD_SYNC &&
		!(local && io_method == IOMETHOD_WORKER) &&
		!zero_damaged_pages && !ignore_checksum_failure;
#else
	return false;
#endif
}

/* Is anything gained by advising the kernel to read? */
static inline bool
LookaheadAdviceIsUseful(void)
{
	return (io_direct_flags & IO_DIRECT_DATA) == 0;
}

/* How many reads one process can have in flight, of those it would like to. */
static inline int
LookaheadReadsInFlight(int wanted)
{
#if PG_VERSION_NUM >= 180000
	/* leave some to whatever else the process reads meanwhile */
	wanted = Min(wanted, io_max_concurrency - 2);
#endif
	return Max(1, wanted);
}

/*
 * A read in flight, by which one can wait for it.  It stays good when the
 * read's handle has been used again, or its resource owner is gone: then the
 * read has ended, or can still be waited for.
 */
#if PG_VERSION_NUM >= 180000
typedef PgAioWaitRef LookaheadRead;
#else
typedef struct LookaheadRead
{
	bool		unused;
} LookaheadRead;
#endif

/* Make it none, which counts as ended. */
static inline void
LookaheadReadClear(LookaheadRead *read)
{
#if PG_VERSION_NUM >= 180000
	pgaio_wref_clear(read);
#else
	read->unused = true;
#endif
}

/* Has it ended?  Never waits. */
static inline bool
LookaheadReadIsDone(const LookaheadRead *read)
{
#if PG_VERSION_NUM >= 180000
	PgAioWaitRef *ref = unconstify(PgAioWaitRef *, read);

	return !pgaio_wref_valid(ref) || pgaio_wref_check_done(ref);
#else
	return true;
#endif
}

/*
 * Is it seen only while somebody waits for a read that reads have ended?  With
 * io_uring, 18 looks at nothing else.
 */
static inline bool
LookaheadReadsEndUnseen(void)
{
#if PG_VERSION_NUM >= 180000 && PG_VERSION_NUM < 190000 && \
	defined(IOMETHOD_IO_URING_ENABLED)
	return io_method == IOMETHOD_IO_URING;
#else
	return false;
#endif
}

/*
 * ReadRecentBuffer(): pin a page if it is still in the buffer where it was and
 * has been read.  If this process has pinned the buffer before, and it is still
 * being read, the server's own function says no since 19 but keeps another pin,
 * which PinBuffer() takes before it looks at BM_VALID.
 */
static inline bool
LookaheadReadRecent(Relation rel, BlockNumber block, Buffer buffer)
{
#if PG_VERSION_NUM >= 190000
	BufferDesc *desc = BufferIsLocal(buffer) ?
		GetLocalBufferDescriptor(-buffer - 1) : GetBufferDescriptor(buffer - 1);

	if ((pg_atomic_read_u64(&desc->state) & BM_VALID) == 0)
		return false;
#endif
	return ReadRecentBuffer(rel->rd_locator, MAIN_FORKNUM, block, buffer);
}

/* How many processes have a shared buffer pinned. */
static inline uint32
LookaheadPinCount(Buffer buffer)
{
	BufferDesc *desc = GetBufferDescriptor(buffer - 1);

#if PG_VERSION_NUM >= 190000
	return BUF_STATE_GET_REFCOUNT(pg_atomic_read_u64(&desc->state));
#else
	return BUF_STATE_GET_REFCOUNT(pg_atomic_read_u32(&desc->state));
#endif
}

/*
 * Wait until it no longer touches its buffers, whether it succeeds or fails.
 * The time is counted as the server counts that of its own waits.
 */
static inline void
LookaheadReadWait(const LookaheadRead *read, bool local)
{
#if PG_VERSION_NUM >= 180000
	if (!LookaheadReadIsDone(read))
	{
		instr_time	start = pgstat_prepare_io_time(track_io_timing);

		pgaio_wref_wait(unconstify(PgAioWaitRef *, read));
		pgstat_count_io_op_time(local ? IOOBJECT_TEMP_RELATION :
										IOOBJECT_RELATION,
								IOCONTEXT_NORMAL, IOOP_READ, start, 0, 0);
	}
#endif
}

/*
 * StartReadBuffers(), where reads run in the background.  Returns false, and
 * clears *read, if the first page was found.  The caller may release its pins
 * at once: from when a read is staged until it has ended, the AIO subsystem
 * holds its own, and the server has copied the list of buffers.
 *
 * WaitReadBuffers() must not follow, since it looks at the buffers and needs
 * pins.  What it does besides waiting is not missed: it raises the error of a
 * read that failed, and reads again what came short; both are done by an
 * ordinary read of the page, once it is found not to be valid.
 *
 * The server does keep one pointer to the operation: when the read ends, its
 * outcome is written to op.io_return, unless the resource owner has been
 * released before.  Memory of a query can be gone by then (AtAbort_Portals()
 * frees it before any resource owner is released).  So there is but one
 * operation, which is never freed, and whose outcome nobody reads.
 */
static inline bool
LookaheadStartRead(Relation rel, BlockNumber block, Buffer *buffers,
				   int *nblocks, LookaheadRead *read)
{
#if PG_VERSION_NUM >= 180000
	static ReadBuffersOperation op;

	op.rel = rel;
	op.smgr = RelationGetSmgr(rel);
	op.persistence = rel->rd_rel->relpersistence;
	op.forknum = MAIN_FORKNUM;
	op.strategy = NULL;
	if (StartReadBuffers(&op, buffers, block, nblocks, 0))
	{
		*read = op.io_wref;
		return true;
	}
	LookaheadReadClear(read);
	return false;
#else
	elog(ERROR, "this server has no asynchronous reads");
	return false;
#endif
}

/* Count a hit in pg_stat_io. */
static inline void
LookaheadCountIoHit(bool local)
{
	IOObject	object = local ? IOOBJECT_TEMP_RELATION : IOOBJECT_RELATION;

#if PG_VERSION_NUM >= 180000
	pgstat_count_io_op(object, IOCONTEXT_NORMAL, IOOP_HIT, 1, 0);
#else
	pgstat_count_io_op(object, IOCONTEXT_NORMAL, IOOP_HIT);
#endif
}

/* Submit several reads at once. */
static inline void
LookaheadEnterBatch(void)
{
#if PG_VERSION_NUM >= 180000
	pgaio_enter_batchmode();
#endif
}

/* Submit now what has been staged so far. */
static inline void
LookaheadSubmit(void)
{
#if PG_VERSION_NUM >= 180000
	pgaio_submit_staged();
#endif
}

static inline void
LookaheadExitBatch(void)
{
#if PG_VERSION_NUM >= 180000
	pgaio_exit_batchmode();
#endif
}

/* How many more buffers, at most "wanted", this backend may pin. */
static inline int
LookaheadAdditionalPins(bool temporary, int wanted)
{
#if PG_VERSION_NUM >= 180000
	return Min(wanted, (int) (temporary ? GetAdditionalLocalPinLimit() :
							  GetAdditionalPinLimit()));
#else
	uint32		pins = wanted;

	if (temporary)
	{
		/* 17 would allow them all; leave three quarters, as 18 does */
		pins = num_temp_buffers;
		LimitAdditionalLocalPins(&pins);
		return Max(0, Min(wanted, (int) pins - num_temp_buffers / 4 * 3));
	}
	/* 17 grants one pin to whoever asks, which many scans cannot all have */
	pins = Max(wanted, 2);
	LimitAdditionalPins(&pins);
	return pins < 2 ? 0 : Min(wanted, (int) pins);
#endif
}

/* How many shared buffers, at most "wanted", a backend may ever pin. */
static inline int
LookaheadPinLimit(int wanted)
{
#if PG_VERSION_NUM >= 180000
	return Min(wanted, (int) GetPinLimit());
#else
	return LookaheadAdditionalPins(false, wanted);
#endif
}

/* The parameters of heap_page_prune_opt(), for who stands in for it. */
#if PG_VERSION_NUM >= 190000
#define LOOKAHEAD_PRUNE_PARAMS \
	(Relation relation, Buffer buffer, Buffer *vm_buffer, bool read_only)
#define LOOKAHEAD_PRUNE_ARGS (relation, buffer, vm_buffer, read_only)
#else
#define LOOKAHEAD_PRUNE_PARAMS (Relation relation, Buffer buffer)
#define LOOKAHEAD_PRUNE_ARGS (relation, buffer)
#endif

/*
 * Until 17 a parallel worker gets its leader's settings before its snapshot,
 * and with that the flag that it works for a VACUUM.
 */
#define LOOKAHEAD_SETTINGS_COME_FIRST (PG_VERSION_NUM < 180000)

/* Does this server stream hash, GIN and Bloom maintenance by itself? */
#define LOOKAHEAD_SERVER_STREAMS_INDEXES (PG_VERSION_NUM >= 190000)

/* A pause of VACUUM's, if its costs demand one.  Checks for interrupts. */
static inline void
LookaheadVacuumDelay(void)
{
#if PG_VERSION_NUM >= 180000
	vacuum_delay_point(false);
#else
	vacuum_delay_point();
#endif
}

/* Count a search of an index, as the statistics and EXPLAIN show it. */
static inline void
LookaheadCountIndexSearch(IndexScanDesc scan)
{
	pgstat_count_index_scan(scan->indexRelation);
#if PG_VERSION_NUM >= 180000
	if (scan->instrument)
		scan->instrument->nsearches++;
#endif
}

/* 17's ExecutorRun has one parameter more, which it ignores or passes on. */
#if PG_VERSION_NUM < 180000
#define EXECUTOR_RUN_EXTRA_PARAMS , bool execute_once
#define EXECUTOR_RUN_EXTRA_ARGS , execute_once
#else
#define EXECUTOR_RUN_EXTRA_PARAMS
#define EXECUTOR_RUN_EXTRA_ARGS
#endif

/*
 * The time of functions.  19 reads the CPU's counter where it may, and has a
 * cheaper way that does not wait for the instructions before it.
 */
#if PG_VERSION_NUM >= 190000
#define LOOKAHEAD_CLOCK(t) INSTR_TIME_SET_CURRENT_FAST(t)
#else
#define LOOKAHEAD_CLOCK(t) INSTR_TIME_SET_CURRENT(t)
#endif

/* Make an index use another routine of its access method. */
static inline void
LookaheadSetRoutine(Relation index, const IndexAmRoutine *routine)
{
#if PG_VERSION_NUM >= 190000
	index->rd_indam = routine;
#else
	index->rd_indam = unconstify(IndexAmRoutine *, routine);
#endif
}

/* The routine that a handler gives. */
static inline void
LookaheadStockRoutine(Oid handler, IndexAmRoutine *routine)
{
#if PG_VERSION_NUM >= 190000
	*routine = *GetIndexAmRoutine(handler);
#else
	IndexAmRoutine *made = GetIndexAmRoutine(handler);

	*routine = *made;
	pfree(made);
#endif
}

/*
 * Have new values of search_path checked by another function, which is to call
 * the one that is returned; NULL, with nothing changed, if that cannot be, or
 * if it is of no use.
 */
static inline GucStringCheckHook
LookaheadCheckSearchPathBy(GucStringCheckHook hook)
{
#if PG_VERSION_NUM >= 190000
	return NULL;
#else
	struct config_string *setting = (struct config_string *)
		find_option("search_path", false, true, 0);
	GucStringCheckHook next;

	if (setting == NULL || setting->gen.vartype != PGC_STRING)
		return NULL;
	next = setting->check_hook;
	if (next != NULL)
		setting->check_hook = hook;
	return next;
#endif
}

/* A table's log_autovacuum_min_duration; -1 if it has none. */
#if PG_VERSION_NUM >= 190000
#define LookaheadVacuumLogDuration(options) \
	((options)->autovacuum.log_vacuum_min_duration)
#else
#define LookaheadVacuumLogDuration(options) \
	((options)->autovacuum.log_min_duration)
#endif

/* Does a statement change the relation of this range table index? */
#if PG_VERSION_NUM >= 190000
#define LOOKAHEAD_IS_RESULT_RELATION(statement, rti) \
	bms_is_member((rti), (statement)->resultRelationRelids)
#else
#define LOOKAHEAD_IS_RESULT_RELATION(statement, rti) \
	list_member_int((statement)->resultRelations, (rti))
#endif

/* The children of a node that are left when it prunes for a scan of it. */
#if PG_VERSION_NUM >= 180000
#define LOOKAHEAD_FIND_MATCHING_SUBPLANS(state) \
	ExecFindMatchingSubPlans((state), false, NULL)
#else
#define LOOKAHEAD_FIND_MATCHING_SUBPLANS(state) \
	ExecFindMatchingSubPlans((state), false)
#endif

/* EXPLAIN lets extensions add to a node since 18. */
#define LOOKAHEAD_HAVE_EXPLAIN_HOOK (PG_VERSION_NUM >= 180000)

/* Add an option to EXPLAIN; 19 asks for a check of it as a setting, too. */
#if PG_VERSION_NUM >= 190000
#define LOOKAHEAD_REGISTER_EXPLAIN_OPTION(name, handler) \
	RegisterExtensionExplainOption((name), (handler), \
								   GUCCheckBooleanExplainOption)
#else
#define LOOKAHEAD_REGISTER_EXPLAIN_OPTION(name, handler) \
	RegisterExtensionExplainOption((name), (handler))
#endif

/* What EXPLAIN counts of an instrumented node: its times and its buffers. */
#if PG_VERSION_NUM >= 190000
#define LOOKAHEAD_INSTRUMENTATION(node) (&(node)->instrument->instr)
#else
#define LOOKAHEAD_INSTRUMENTATION(node) ((node)->instrument)
#endif

/* Open the scan of a sequential scan node, as the server does. */
#if PG_VERSION_NUM >= 190000
#define LOOKAHEAD_BEGIN_TABLE_SCAN(ss) \
	table_beginscan((ss)->ss_currentRelation, (ss)->ps.state->es_snapshot, \
					0, NULL, \
					(ScanRelIsReadOnly(ss) ? \
						 SO_HINT_REL_READ_ONLY : \
						 SO_NONE) | \
						((ss)->ps.state->es_instrument & INSTRUMENT_IO ? \
							 SO_SCAN_INSTRUMENT : \
							 SO_NONE))
#else
#define LOOKAHEAD_BEGIN_TABLE_SCAN(ss) \
	table_beginscan((ss)->ss_currentRelation, (ss)->ps.state->es_snapshot, \
					0, NULL)
#endif

/* Does a btree scan return the TIDs of a posting list last one first? */
static inline bool
LookaheadPostingIsReversed(ScanDirection dir)
{
#if PG_VERSION_NUM >= 190000
	return ScanDirectionIsBackward(dir);
#else
	return false;
#endif
}

#endif							/* PG_LOOKAHEAD_COMPAT_H */
