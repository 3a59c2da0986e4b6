/*-------------------------------------------------------------------------
 *
 * progress.c
 *		How far the reading of a relation has come; see progress.h.
 *
 * The server's own progress reports (pg_stat_progress_*) are of no use here:
 * each command that may report has a number that is built into the server.  So
 * there is an array of slots in shared memory.  A process takes a slot when an
 * activity begins and gives it back when it ends; nothing else is shared
 * between processes that report, so no lock is needed, and to count a block is
 * to store a number.
 *
 * A reader must not take half of one activity and half of another for one.  A
 * slot therefore has a number that is odd while its owner changes it, as
 * entries of pg_stat_activity have.  The two counts of blocks may be read at
 * any time.
 *
 * A slot counts only while the process that it names lives, at its place among
 * the server's processes.  So an entry of a process that could not clear it is
 * never shown, and its slot is taken by whoever finds no free one.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_authid_d.h"
#include "miscadmin.h"
#include "observe/progress.h"
#include "observe/shared.h"
#include "sql_result.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/acl.h"
#include "utils/timestamp.h"

/* Activities that can be shown at a time. */
#define PROGRESS_SLOTS 64

#define NAME_SIZE 32

typedef struct ProgressSlot
{
	pg_atomic_uint32 owner;		/* process ID; 0: the slot is free */
	pg_atomic_uint32 changes;	/* odd while the owner changes what follows */
	ProcNumber	procno;
	Oid			database;
	Oid			relid;
	TimestampTz started;		/* when the activity was started */
	TimestampTz phase_started;
	char		function[NAME_SIZE];
	char		phase[NAME_SIZE];

	/* blocks of this phase; not covered by "changes" */
	pg_atomic_uint64 total;
	pg_atomic_uint64 done;
} ProgressSlot;

ProgressActivity progress_activity;

static ProgressSlot *my_slot = NULL;
static int	my_nest_level;		/* transaction nest level at which it began */

PG_FUNCTION_INFO_V1(lookahead_progress);

static void
progress_init_shared(void *ptr)
{
	ProgressSlot *slots = ptr;

	for (int i = 0; i < PROGRESS_SLOTS; i++)
	{
		pg_atomic_init_u32(&slots[i].owner, 0);
		pg_atomic_init_u32(&slots[i].changes, 0);
		pg_atomic_init_u64(&slots[i].total, 0);
		pg_atomic_init_u64(&slots[i].done, 0);
	}
}

static SharedSegment segment = {"progress",
								PROGRESS_SLOTS * sizeof(ProgressSlot),
								progress_init_shared};

/* The owner is about to change its slot, or has done so. */
static void
progress_mark_change(ProgressSlot *slot)
{
	pg_atomic_fetch_add_u32(&slot->changes, 1); /* a full barrier */
}

/* Is there such a process, at that place? */
static bool
progress_is_alive(int pid, ProcNumber procno)
{
	return procno >= 0 && procno < ProcGlobal->allProcCount &&
		GetPGProcByNumber(procno)->pid == pid;
}

/*
 * A slot of our own, or NULL.  Where all are taken, one of a process that is
 * gone will do.  Its process ID alone must tell that: whoever has just taken
 * the slot has not yet said where its place is.
 */
static ProgressSlot *
progress_take_slot(ProgressSlot *slots)
{
	for (int i = 0; i < PROGRESS_SLOTS; i++)
	{
		uint32		owner = 0;

		if (pg_atomic_compare_exchange_u32(&slots[i].owner, &owner, MyProcPid))
			return &slots[i];
	}
	for (int i = 0; i < PROGRESS_SLOTS; i++)
	{
		uint32		owner = pg_atomic_read_u32(&slots[i].owner);

		if (BackendPidGetProc(owner) == NULL &&
			pg_atomic_compare_exchange_u32(&slots[i].owner, &owner, MyProcPid))
			return &slots[i];
	}
	return NULL;
}

void
ProgressEnd(void)
{
	memset(&progress_activity, 0, sizeof(progress_activity));
	if (my_slot != NULL)
		pg_atomic_write_membarrier_u32(&my_slot->owner, 0);
	my_slot = NULL;
}

/* End an activity that an error has left, at the end of its transaction. */
static void
progress_at_xact_event(XactEvent event, void *arg)
{
	if (unlikely(progress_activity.active) && XactIsEnding(event))
		ProgressEnd();
}

/* End it at the end of the subtransaction in which it began, if that failed. */
static void
progress_at_subxact_event(SubXactEvent event, SubTransactionId subxact,
						  SubTransactionId parent, void *arg)
{
	if (unlikely(progress_activity.active) &&
		event == SUBXACT_EVENT_ABORT_SUB &&
		my_nest_level >= GetCurrentTransactionNestLevel())
		ProgressEnd();
}

/* A phase begins; to be called while the slot is marked as changing. */
static void
progress_begin_phase(const char *phase)
{
	my_slot->phase_started = GetCurrentTimestamp();
	snprintf(my_slot->phase, NAME_SIZE, "%s", phase);
	pg_atomic_write_u64(&my_slot->total, 0);
	pg_atomic_write_u64(&my_slot->done, 0);
}

void
ProgressBegin(const char *function, Oid relid, bool throttled)
{
	static bool registered = false;
	ProgressSlot *slots = SharedSegmentGet(&segment);

	if (!registered)
		RegisterSubXactCallback(progress_at_subxact_event, NULL);
	XactCallbackOnce(&registered, progress_at_xact_event);
	if (my_slot == NULL && slots != NULL)
		my_slot = progress_take_slot(slots);
	progress_activity.active = true;
	progress_activity.throttled = throttled;
	my_nest_level = GetCurrentTransactionNestLevel();
	if (my_slot == NULL)
		return;

	progress_mark_change(my_slot);
	my_slot->procno = MyProcNumber;
	my_slot->database = MyDatabaseId;
	my_slot->relid = relid;
	snprintf(my_slot->function, NAME_SIZE, "%s", function);
	progress_begin_phase("reading pages");
	my_slot->started = my_slot->phase_started;
	progress_mark_change(my_slot);
	progress_activity.total = &my_slot->total;
	progress_activity.done = &my_slot->done;
}

void
ProgressPhase(const char *phase)
{
	if (my_slot == NULL)
		return;
	progress_mark_change(my_slot);
	progress_begin_phase(phase);
	progress_mark_change(my_slot);
}

void
ProgressInit(void)
{
	SharedSegmentRegister(&segment);
}

/* Copy a slot.  False if it is free, or has no living owner. */
static bool
progress_read_slot(ProgressSlot *slot, ProgressSlot *copy, int *pid)
{
	for (;;)
	{
		uint32		before = pg_atomic_read_u32(&slot->changes);

		pg_read_barrier();
		*pid = pg_atomic_read_u32(&slot->owner);
		if (*pid == 0)
			return false;
		memcpy(copy, slot, sizeof(*copy));
		pg_read_barrier();
		if (before % 2 == 0 && pg_atomic_read_u32(&slot->changes) == before)
			break;
		if (!progress_is_alive(*pid, slot->procno))
			return false;		/* nobody will finish the change */
		CHECK_FOR_INTERRUPTS();
	}

	/* what a process has begun since it took the slot is all there is */
	return copy->database != InvalidOid &&
		progress_is_alive(*pid, copy->procno);
}

/*
 * lookahead.progress() returns setof record
 *
 * One row for each activity.  As with the server's own views, who may not see
 * what another role does sees the process and its database only.
 */
Datum
lookahead_progress(PG_FUNCTION_ARGS)
{
	static const Oid columns[] = {
		INT4OID, OIDOID, OIDOID, TEXTOID, TEXTOID, INT8OID, INT8OID,
		FLOAT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID
	};
	ReturnSetInfo *set = ResultSet(fcinfo, lengthof(columns), columns);
	ProgressSlot *slots = SharedSegmentGet(&segment);
	TimestampTz now = GetCurrentTimestamp();

	for (int i = 0; slots != NULL && i < PROGRESS_SLOTS; i++)
	{
		ProgressSlot slot;
		ResultRow	row = {0};
		double		seconds;
		uint64		total;
		uint64		done;
		TimestampTz end;
		int			pid;

		if (!progress_read_slot(&slots[i], &slot, &pid))
			continue;

		total = pg_atomic_read_u64(&slot.total);
		done = Min(pg_atomic_read_u64(&slot.done), total);
		seconds = (now - slot.phase_started) / 1e6;
		ResultInt32(&row, pid);
		ResultDatum(&row, OIDOID, ObjectIdGetDatum(slot.database), false);
		ResultDatum(&row, OIDOID, ObjectIdGetDatum(slot.relid), false);
		ResultText(&row, slot.function);
		ResultText(&row, slot.phase);
		ResultInt64(&row, total);
		ResultInt64(&row, done);
		ResultDatum(&row, FLOAT8OID,
					Float8GetDatum(done * (BLCKSZ / 1024.0) / seconds),
					seconds <= 0);
		ResultDatum(&row, TIMESTAMPTZOID, TimestampTzGetDatum(slot.started),
					false);
		end = slot.phase_started;
		if (done > 0)
			end += (TimestampTz) (seconds * 1e6 * total / done);
		ResultDatum(&row, TIMESTAMPTZOID, TimestampTzGetDatum(end),
					done == 0 || seconds <= 0);

		/* all but the process and its database */
		if (!has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) &&
			!has_privs_of_role(GetUserId(),
							   GetPGProcByNumber(slot.procno)->roleId))
			memset(row.nulls + 2, true, row.ncolumns - 2);
		ResultPut(set, &row);
	}
	return (Datum) 0;
}
