/*-------------------------------------------------------------------------
 *
 * copy.c
 *		COPY FROM: leaf pages of the rows that it has gathered.
 *
 * COPY gathers up to 1,000 rows and writes them into the table before it makes
 * their index entries, one row after the other.  When it comes to the first
 * entry of a row, the rows that follow are known, and their keys
 * are looked up early.  Where COPY writes rows one by one, since a trigger or a
 * volatile default may look at the table, no row follows; then the indexes of
 * one row are looked up together.
 *
 * No hook of the server's is called between two rows of COPY.  So each index
 * has an aminsert member of ours (index_routine.h) while COPY runs, which calls
 * the server's.  That is begun when COPY has locked the table and checked its
 * privileges: there the indexes are opened as COPY itself will open them a
 * little later, but without waiting for a lock.  It is undone when the command
 * ends, before an error gives up the references to the indexes.  Their locks
 * end then, too, as the server's own do.
 *
 * Nothing is written early and nobody's code is run early: the rows have been
 * written, with all their defaults and generated columns, and of the indexes'
 * expressions only those are evaluated that cannot fail (index_keys.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "compat.h"
#include "early/heap_row.h"
#include "enabled.h"
#include "exec/judge_timing.h"
#include "exec/takeover.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "index/index_routine.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "read/page_read.h"
#include "read/uncount.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "write/index_keys.h"
#include "write/write.h"

/* Rows that are taken into account when it is asked what is to be won. */
#define MANY_ROWS 512

/*
 * The rows of a batch that follow a row follow it in the table, too, on the
 * same page and on the next ones.  Where the batch goes on at another place,
 * for the sake of free space, the rows end here.  They are those of our own
 * command, so that nobody removes them, and their line pointers stay as they
 * are.  Others move them on their page only while it is locked and nobody else
 * has it pinned.  So the page is locked after it was pinned, and from then on
 * the pin is enough.  Their pages have just been written, and are cached:
 * another page is not read, since it may be damaged.
 */
typedef struct CopyBatch
{
	Relation	table;
	TupleTableSlot *slot;
	TransactionId xid;			/* by whom the rows were written ... */
	CommandId	command;		/* ... and by which command */
	BlockNumber block;			/* the page whose rows are listed */
	Buffer		buffer;			/* that page, until copy_release_page() */
	bool		ended;
	HeapTupleData tuple;		/* in the slot */
	int			n;
	int			next;
	OffsetNumber offsets[MaxHeapTuplesPerPage];
} CopyBatch;

/* A COPY that runs, in a memory context of its own. */
typedef struct Copy
{
	struct Copy *outer;			/* by whose trigger it was called, or NULL */
	SubTransactionId subid;		/* in which it runs */
	MemoryContext mcxt;
	EState	   *estate;
	Relation	table;
	int			nindexes;
	Relation   *indexes;		/* those of kinds that are looked up */
	Judge		judge;
	Refusal		refusal;		/* why it must not look ahead */
	KeysAhead	keys;
	CopyBatch	batch;

	/* the row whose entries are being made */
	bool		has_row;
	ItemPointerData tid;
	const int64 *reads;			/* this backend's count of blocks read */
	int64		reads_seen;
	int64		misses_seen;	/* the indexes' misses at that time */
	instr_time	inside;
} Copy;

static ExecutorCheckPerms_hook_type prev_ExecutorCheckPerms = NULL;
static ProcessUtility_hook_type prev_ProcessUtility = NULL;

/*
 * The memory context in which a COPY has been called that has not checked its
 * privileges, or NULL.  A function that it calls early, for a constant, may
 * execute statements, which check others in contexts of their own.
 */
static MemoryContext starting = NULL;

/* The innermost one that is served. */
static Copy *running = NULL;

/* Give up the page whose row was returned last. */
static void
copy_release_page(CopyBatch *rows)
{
	ExecClearTuple(rows->slot);
	if (BufferIsValid(rows->buffer))
		ReleaseBuffer(rows->buffer);
	rows->buffer = InvalidBuffer;
}

/* Has the command written this tuple, and has nobody changed it since? */
static bool
copy_is_of_batch(const CopyBatch *rows, HeapTupleHeader tuple)
{
	return (tuple->t_infomask & HEAP_XMAX_INVALID) != 0 &&
		HeapTupleHeaderGetRawXmin(tuple) == rows->xid &&
		HeapTupleHeaderGetRawCommandId(tuple) == rows->command;
}

/*
 * List the rows of "block" from an offset on.  begins: the batch begins with
 * the tuple at that offset; its writer is that of all rows of the batch.
 */
static void
copy_list_page(CopyBatch *rows, OffsetNumber first, bool begins)
{
	Page		page;
	OffsetNumber last;
	HeapTupleData row;

	rows->n = rows->next = 0;
	rows->buffer = PageFindLocked(rows->table, rows->block);
	if (!BufferIsValid(rows->buffer))
		return;
	page = BufferGetPage(rows->buffer);
	last = PageIsNew(page) ? 0 :
		Min(PageGetMaxOffsetNumber(page), MaxHeapTuplesPerPage);
	if (begins && first <= last && HeapRowAt(page, first, ROW_IS_VISIBLE, &row))
	{
		rows->xid = HeapTupleHeaderGetRawXmin(row.t_data);
		rows->command = HeapTupleHeaderGetRawCommandId(row.t_data);
		rows->ended = false;
	}
	for (OffsetNumber i = first; i <= last && !rows->ended; i++)
		if (HeapRowAt(page, i, ROW_IS_VISIBLE, &row) &&
			copy_is_of_batch(rows, row.t_data))
			rows->offsets[rows->n++] = i;
	LockBuffer(rows->buffer, BUFFER_LOCK_UNLOCK);
}

/* Go to the next page, if there is one. */
static bool
copy_next_page(CopyBatch *rows)
{
	copy_release_page(rows);
	if (rows->block + 1 >= RelationGetNumberOfBlocks(rows->table))
		return false;
	rows->block++;
	copy_list_page(rows, FirstOffsetNumber, false);
	return rows->n > 0;
}

/* The next row, whose page is then pinned; NULL if it is not known. */
static TupleTableSlot *
copy_next_of_batch(CopyBatch *rows)
{
	HeapTuple	tuple = &rows->tuple;

	if (!rows->ended && rows->next == rows->n)
		rows->ended = !copy_next_page(rows);
	if (rows->ended)
		return NULL;
	if (!BufferIsValid(rows->buffer))
	{
		rows->buffer = PageFindLocked(rows->table, rows->block);
		if (BufferIsValid(rows->buffer))
			LockBuffer(rows->buffer, BUFFER_LOCK_UNLOCK);
	}
	rows->ended = !BufferIsValid(rows->buffer) ||
		!HeapRowAt(BufferGetPage(rows->buffer), rows->offsets[rows->next++],
				   ROW_IS_VISIBLE, tuple);
	if (rows->ended)
		return NULL;
	tuple->t_tableOid = RelationGetRelid(rows->table);
	ItemPointerSetBlockNumber(&tuple->t_self, rows->block);
	return ExecStoreHeapTuple(tuple, rows->slot, false);
}

static Copy *
copy_into(Oid table)
{
	for (Copy *copy = running; copy != NULL; copy = copy->outer)
		if (RelationGetRelid(copy->table) == table)
			return copy;
	return NULL;
}

/* Create the ring; return the reason why there must be none. */
static Refusal
copy_open_ring(Copy *copy)
{
	RowsBounds	bounds;
	Refusal		refusal = RowsAheadBounds(copy->table, &bounds);

	if (refusal != NOT_REFUSED)
		return refusal;
	bounds.bytes = Max(bounds.least_bytes,
					   Min(bounds.bytes, work_mem * INT64CONST(1024) / 2));
	copy->estate = CreateExecutorState();
	refusal = IndexKeysOpen(&copy->keys, copy->estate,
							CreateExprContext(copy->estate), copy->table,
							copy->indexes, NULL, copy->nindexes, &bounds);
	if (refusal != NOT_REFUSED)
		return refusal;
	copy->batch = (CopyBatch) {.table = copy->table, .buffer = InvalidBuffer,
							   .ended = true,
							   .slot = CachedRowSlot(copy->table)};
	JudgeSetMaximum(&copy->judge, copy->keys.lookups.max_keys, 0);
	JudgeRunsToEnd(&copy->judge);
	return NOT_REFUSED;
}

/* Create the ring when it is first needed; false if there must be none. */
static bool
copy_may_look_ahead(Copy *copy)
{
	BufferUsage before = pgBufferUsage;

	if (copy->keys.rows != NULL)
		return true;
	copy->refusal = copy_open_ring(copy);
	if (copy->refusal != NOT_REFUSED)
		JudgeForbid(&copy->judge);
	UncountCatalogs(&before);
	return copy->refusal == NOT_REFUSED;
}

/* Add rows to the ring, beginning with the one at the row's place. */
static void
copy_fill(Copy *copy)
{
	RowsAhead  *rows = copy->keys.rows;
	CopyBatch  *batch = &copy->batch;
	bool		is_ahead = copy->judge.mode == JUDGE_AHEAD;
	int			wanted = is_ahead ? copy->judge.distance : 0;

	if (RowsAheadSize(rows) == 0 && is_ahead)
	{
		copy_release_page(batch);
		batch->ended = true;
		batch->block = ItemPointerGetBlockNumber(&copy->tid);
		copy_list_page(batch, ItemPointerGetOffsetNumber(&copy->tid), true);
	}
	if (!KeysAheadIsTimeToFill(&copy->keys, wanted, is_ahead && !batch->ended))
		return;
	while (is_ahead && RowsAheadSize(rows) < wanted + 1 &&
		   RowsAheadHasRoom(rows))
	{
		TupleTableSlot *slot;

		CHECK_FOR_INTERRUPTS();
		slot = copy_next_of_batch(batch);
		if (slot == NULL)
			break;
		KeysAheadAdd(&copy->keys, slot);
	}
	copy_release_page(batch);
	KeysAheadRead(&copy->keys);
	if (RowsAheadSize(rows) == 1 && wanted > 0 && !RowsAheadHasRoom(rows))
		JudgeNoRoom(&copy->judge);
}

/* Look ahead from the row whose entries are to be made. */
static void
copy_look_ahead(Copy *copy)
{
	RowsAhead  *rows = copy->keys.rows;

	/* the batch has gone on at another place, or there is another batch */
	if (RowsAheadSize(rows) > 0 &&
		!ItemPointerEquals(&RowsAheadAt(rows, 0)->slot->tts_tid, &copy->tid))
		KeysAheadForget(&copy->keys);
	copy_fill(copy);
	if (RowsAheadSize(rows) > 0)
		(void) KeysAheadNext(&copy->keys);
	JudgeEntries(&copy->judge, 0, RowsAheadSize(rows));
}

/* The entries of a row have been made: tell the judge what that took. */
static void
copy_end_row(Copy *copy)
{
	Judge	   *judge = &copy->judge;
	int64		misses;
	int64		reads;

	if (judge->mode == JUDGE_WATCH)
	{
		if (unlikely(*copy->reads != copy->reads_seen))
			JudgeReadSeen(judge, RelationGetRelid(copy->table),
						  effective_io_concurrency);
		return;
	}
	if (copy->keys.rows != NULL)
		KeysAheadPass(&copy->keys);
	misses = MissesOf(copy->indexes, copy->nindexes);
	reads = misses < 0 ? *copy->reads - copy->reads_seen :
		misses - copy->misses_seen;
	if (copy->keys.rows != NULL)
		IndexKeysNoteReads(&copy->keys);
	JudgeTimedUnit(judge, reads, &copy->inside, KeysAheadSize(&copy->keys),
				   MANY_ROWS, NULL);
}

/* The first entry of another row is to be made. */
static void
copy_begin_row(Copy *copy, const ItemPointerData *tid)
{
	if (copy->has_row)
		copy_end_row(copy);
	copy->has_row = true;
	copy->tid = *tid;
	if (copy->judge.mode >= JUDGE_AHEAD)
	{
		MemoryContext old = MemoryContextSwitchTo(copy->mcxt);
		instr_time	start = JudgeStartTiming(&copy->judge);

		if (copy_may_look_ahead(copy))
			copy_look_ahead(copy);
		JudgeStopTiming(&copy->inside, start);
		MemoryContextSwitchTo(old);
	}
	copy->reads_seen = *copy->reads;
	if (copy->judge.mode != JUDGE_WATCH)
		copy->misses_seen = MissesOf(copy->indexes, copy->nindexes);
}

/* The aminsert member of a table's indexes while COPY writes to it. */
static bool
copy_insert(Relation index, Datum *values, bool *isnull, ItemPointer tid,
			Relation table, IndexUniqueCheck check, bool unchanged,
			IndexInfo *info)
{
	aminsert_function insert = IndexRoutineStock(index)->aminsert;
	Copy	   *copy = copy_into(RelationGetRelid(table));
	instr_time	start;
	bool		result;

	/*
	 * Leave other writers to the server.  They may be in a subtransaction with
	 * an exception block, so that COPY goes on after their errors.  A deferred
	 * check of uniqueness makes no new entry.
	 */
	if (copy == NULL || check == UNIQUE_CHECK_EXISTING ||
		copy->subid != GetCurrentSubTransactionId())
		return insert(index, values, isnull, tid, table, check, unchanged,
					  info);
	if (!copy->has_row || !ItemPointerEquals(&copy->tid, tid))
		copy_begin_row(copy, tid);
	start = JudgeStartTiming(&copy->judge);
	result = insert(index, values, isnull, tid, table, check, unchanged, info);
	JudgeStopTiming(&copy->inside, start);
	return result;
}

static const IndexMembers copy_members = {.aminsert = copy_insert};

/* Open an index and give it our member, unless it is locked by another. */
static void
copy_serve_index(Copy *copy, Oid oid)
{
	Relation	index;

	if (!ConditionalLockRelationOid(oid, RowExclusiveLock))
		return;
	index = index_open(oid, NoLock);
	if (LookupKnowsIndex(index) && index->rd_index->indisready &&
		IndexRoutineAdd(index, &copy_members))
		copy->indexes[copy->nindexes++] = index;
	else
		index_close(index, RowExclusiveLock);
}

/* May COPY look ahead when it writes to this table? */
static bool
copy_may_serve(Relation table)
{
	return table->rd_rel->relkind == RELKIND_RELATION &&
		table->rd_rel->relhasindex &&
		TakeoverTableRefusal(table) == NOT_REFUSED &&
		SettingsRefusal() == NOT_REFUSED &&
		copy_into(RelationGetRelid(table)) == NULL;
}

/* COPY has locked a table and may write to it. */
static void
copy_begin(Oid oid)
{
	Relation	table = table_open(oid, NoLock);
	MemoryContext mcxt;
	MemoryContext old;
	List	   *indexes;
	Copy	   *copy;

	if (!copy_may_serve(table))
	{
		table_close(table, NoLock);
		return;
	}
	mcxt = AllocSetContextCreate(CurrentMemoryContext, "look-ahead of COPY",
								 ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(mcxt);
	indexes = RelationGetIndexList(table);
	copy = palloc0_object(Copy);
	copy->mcxt = mcxt;
	copy->subid = GetCurrentSubTransactionId();
	copy->table = table;
	copy->indexes = palloc_array(Relation, Max(1, list_length(indexes)));
	copy->reads = UsageReads(table);
	JudgeInit(&copy->judge, JUDGE_WRITES, lookahead_debug_force);
	copy->outer = running;
	running = copy;
	foreach_oid(index, indexes)
		copy_serve_index(copy, index);
	MemoryContextSwitchTo(old);
}

/*
 * The innermost COPY has ended.  failed: an error is on its way, which will
 * close what is open.
 */
static void
copy_end(bool failed)
{
	Copy	   *copy = running;
	WriteCounters counters = {0};

	running = copy->outer;
	for (int i = 0; i < copy->nindexes; i++)
		IndexRoutineRemove(copy->indexes[i], &copy_members);
	if (!failed && copy->has_row)
		copy_end_row(copy);
	KeysAheadSum(&copy->keys, &counters);
	if (copy->keys.rows != NULL)
		TotalsAdd(&WriteTotals, &counters);
	if (!failed)
	{
		(void) PageReadsWait(&copy->keys.lookups, true);
		for (int i = 0; i < copy->nindexes; i++)
			index_close(copy->indexes[i], RowExclusiveLock);
		table_close(copy->table, NoLock);
	}
	MemoryContextDelete(copy->mcxt);
}

static bool
copy_ExecutorCheckPerms(List *range_table, List *perms, bool error)
{
	if (prev_ExecutorCheckPerms &&
		!prev_ExecutorCheckPerms(range_table, perms, error))
		return false;
	if (starting != NULL && starting == CurrentMemoryContext)
	{
		starting = NULL;
		copy_begin(linitial_node(RTEPermissionInfo, perms)->relid);
	}
	return true;
}

static void
copy_ProcessUtility(PlannedStmt *pstmt, const char *queryString,
					bool readOnlyTree, ProcessUtilityContext context,
					ParamListInfo params, QueryEnvironment *queryEnv,
					DestReceiver *dest, QueryCompletion *qc)
{
	const CopyStmt *stmt = (const CopyStmt *) pstmt->utilityStmt;
	MemoryContext outer_starting = starting;
	Copy	   *outer = running;

	if (!IsA(stmt, CopyStmt) || !stmt->is_from || !lookahead_enabled ||
		!lookahead_writes)
	{
		prev_ProcessUtility(pstmt, queryString, readOnlyTree, context, params,
							queryEnv, dest, qc);
		return;
	}
	starting = CurrentMemoryContext;
	PG_TRY();
	{
		prev_ProcessUtility(pstmt, queryString, readOnlyTree, context, params,
							queryEnv, dest, qc);
	}
	PG_CATCH();
	{
		starting = outer_starting;
		while (running != outer)
			copy_end(true);
		PG_RE_THROW();
	}
	PG_END_TRY();
	starting = outer_starting;
	while (running != outer)
		copy_end(false);
}

void
CopyInit(void)
{
	prev_ExecutorCheckPerms = ExecutorCheckPerms_hook;
	ExecutorCheckPerms_hook = copy_ExecutorCheckPerms;
	INSTALL_HOOK(ProcessUtility, copy_ProcessUtility);
}
