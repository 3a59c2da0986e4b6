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

/* The server's version as a number: 180006 is 18.6. */
#define LOOKAHEAD_SERVER_VERSION_NUM PG_VERSION_NUM

/* Of this library. */
#define LOOKAHEAD_VERSION "1.0.0"

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

/*
 * Reads started by StartReadBuffers().  Since 18 they run in the background,
 * unless io_method is sync; before, and then, starting one advises the kernel
 * at most, and the read happens in WaitReadBuffers().
 */

#if PG_VERSION_NUM >= 180000
static inline bool
LookaheadReadFailed(ReadBuffersOperation *op)
{
	return op->io_return.result.status == PGAIO_RS_ERROR;
}
#endif

static inline uint64
LookaheadBufferState(BufferDesc *desc)
{
#if PG_VERSION_NUM >= 190000
	return pg_atomic_read_u64(&desc->state);
#else
	return pg_atomic_read_u32(&desc->state);
#endif
}

/* Are reads asynchronous on this server? */
static inline bool
LookaheadReadsAreAsync(void)
{
#if PG_VERSION_NUM >= 180000
	return io_method != IOMETHOD_SYNC;
#else
	return false;
#endif
}

/* Flags for StartReadBuffers(): advise the kernel, where that is all we can. */
static inline int
LookaheadReadAdvice(void)
{
	if (LookaheadReadsAreAsync() || (io_direct_flags & IO_DIRECT_DATA) != 0)
		return 0;
	return READ_BUFFERS_ISSUE_ADVICE;
}

static inline void
LookaheadSetPersistence(ReadBuffersOperation *op, char persistence)
{
#if PG_VERSION_NUM >= 180000
	op->persistence = persistence;
#else
	op->smgr_persistence = persistence;
#endif
}

/* Has a read that was started ended?  Never waits; false if not async. */
static inline bool
LookaheadReadIsDone(ReadBuffersOperation *op)
{
#if PG_VERSION_NUM >= 180000
	return pgaio_wref_valid(&op->io_wref) &&
		pgaio_wref_check_done(&op->io_wref);
#else
	return false;
#endif
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
 * Wait for a read that was started, and raise no error if it failed; the
 * buffers it could not read stay invalid.  (Where reads are not asynchronous
 * the read is done here, with its errors.)  The wait is timed as the server
 * times its own.  Where the pins were given back (pinned is false), what the
 * read has left undone is not done here.
 */
static inline void
LookaheadWait(ReadBuffersOperation *op, bool pinned)
{
#if PG_VERSION_NUM >= 180000
	if (pgaio_wref_valid(&op->io_wref))
	{
		if (!pgaio_wref_check_done(&op->io_wref))
		{
			instr_time	start = pgstat_prepare_io_time(track_io_timing);

			pgaio_wref_wait(&op->io_wref);
			pgstat_count_io_op_time(op->persistence == RELPERSISTENCE_TEMP ?
									IOOBJECT_TEMP_RELATION : IOOBJECT_RELATION,
									IOCONTEXT_NORMAL, IOOP_READ, start, 0, 0);
		}
		if (LookaheadReadFailed(op))
			return;
		if (!pinned && op->io_return.result.status == PGAIO_RS_WARNING)
			pgaio_result_report(op->io_return.result,
								&op->io_return.target_data, WARNING);
	}
#endif
	if (pinned)
		WaitReadBuffers(op);
}

/*
 * Wait until a read that was started no longer touches its buffers; whether
 * it succeeded does not matter, and nothing is read if nothing was started.
 */
static inline void
LookaheadWaitQuietly(ReadBuffersOperation *op)
{
#if PG_VERSION_NUM >= 180000
	if (pgaio_wref_valid(&op->io_wref))
		pgaio_wref_wait(&op->io_wref);
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

static inline void
LookaheadExitBatch(void)
{
#if PG_VERSION_NUM >= 180000
	pgaio_exit_batchmode();
#endif
}

/* Does a buffer that we hold a pin on contain its page? */
static inline bool
LookaheadBufferIsValid(Buffer buffer)
{
	BufferDesc *desc = BufferIsLocal(buffer) ?
		GetLocalBufferDescriptor(-buffer - 1) : GetBufferDescriptor(buffer - 1);

	return (LookaheadBufferState(desc) & BM_VALID) != 0;
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

/* How many buffers, at most "wanted", a backend may ever pin. */
static inline int
LookaheadPinLimit(bool temporary, int wanted)
{
#if PG_VERSION_NUM >= 180000
	return Min(wanted, (int) (temporary ? GetLocalPinLimit() : GetPinLimit()));
#else
	return LookaheadAdditionalPins(temporary, wanted);
#endif
}

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

/* The leaf page to the left of a btree scan's position, as far as known. */
static inline BlockNumber
LookaheadPreviousLeaf(BTScanPos pos)
{
#if PG_VERSION_NUM >= 180000
	return pos->prevPage;
#else
	return P_NONE;
#endif
}

/*
 * The heap page that an index scan holds.
 */
static inline Buffer
LookaheadHeapBuffer(IndexScanDesc scan)
{
	return ((IndexFetchHeapData *) scan->xs_heapfetch)->xs_cbuf;
}

/* Its block, or InvalidBlockNumber. */
static inline BlockNumber
LookaheadHeapBlock(IndexScanDesc scan)
{
	Buffer		buffer = LookaheadHeapBuffer(scan);

	return BufferIsValid(buffer) ? BufferGetBlockNumber(buffer) :
								   InvalidBlockNumber;
}

/* Take the heap page from an index scan, which then holds none. */
static inline Buffer
LookaheadGiveHeapBuffer(IndexScanDesc scan)
{
	IndexFetchHeapData *hscan = (IndexFetchHeapData *) scan->xs_heapfetch;
	Buffer		buffer = hscan->xs_cbuf;

	hscan->xs_cbuf = InvalidBuffer;
#if PG_VERSION_NUM >= 190000
	hscan->xs_blk = InvalidBlockNumber;
#endif
	return buffer;
}

/*
 * Make an index scan hold another heap page, whose pin it takes over, and
 * prune that page as the table access method does when it arrives there.
 */
static inline void
LookaheadSetHeapBuffer(IndexScanDesc scan, Buffer buffer)
{
	IndexFetchHeapData *hscan = (IndexFetchHeapData *) scan->xs_heapfetch;

	if (BufferIsValid(hscan->xs_cbuf))
		ReleaseBuffer(hscan->xs_cbuf);
	hscan->xs_cbuf = buffer;
#if PG_VERSION_NUM >= 190000
	hscan->xs_blk = BufferGetBlockNumber(buffer);
	heap_page_prune_opt(scan->heapRelation, buffer, &hscan->xs_vmbuffer,
						(hscan->xs_base.flags & SO_HINT_REL_READ_ONLY) != 0);
#else
	heap_page_prune_opt(scan->heapRelation, buffer);
#endif
}

/*
 * Open the scan of an index scan node, or of an index-only scan node, as the
 * server does when the node's first row is wanted.
 */
#if PG_VERSION_NUM >= 190000
#define LOOKAHEAD_BEGIN_SCAN(ss, index, instrument, nkeys, norderbys) \
	index_beginscan((ss)->ss_currentRelation, (index), \
					(ss)->ps.state->es_snapshot, (instrument), \
					(nkeys), (norderbys), \
					ScanRelIsReadOnly(ss) ? SO_HINT_REL_READ_ONLY : SO_NONE)
#elif PG_VERSION_NUM >= 180000
#define LOOKAHEAD_BEGIN_SCAN(ss, index, instrument, nkeys, norderbys) \
	index_beginscan((ss)->ss_currentRelation, (index), \
					(ss)->ps.state->es_snapshot, &(instrument), \
					(nkeys), (norderbys))
#else
#define LOOKAHEAD_BEGIN_SCAN(ss, index, instrument, nkeys, norderbys) \
	index_beginscan((ss)->ss_currentRelation, (index), \
					(ss)->ps.state->es_snapshot, (nkeys), (norderbys))
#endif

/* Open a scan of an index that is no plan's. */
#if PG_VERSION_NUM >= 190000
#define LOOKAHEAD_BEGIN_OWN_SCAN(table, index, snapshot, nkeys) \
	index_beginscan((table), (index), (snapshot), NULL, (nkeys), 0, SO_NONE)
#elif PG_VERSION_NUM >= 180000
#define LOOKAHEAD_BEGIN_OWN_SCAN(table, index, snapshot, nkeys) \
	index_beginscan((table), (index), (snapshot), NULL, (nkeys), 0)
#else
#define LOOKAHEAD_BEGIN_OWN_SCAN(table, index, snapshot, nkeys) \
	index_beginscan((table), (index), (snapshot), (nkeys), 0)
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

#endif							/* PG_LOOKAHEAD_COMPAT_H */
