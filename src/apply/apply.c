/*-------------------------------------------------------------------------
 *
 * apply.c
 *		The worker that applies changes of a subscription: what has arrived from
 *		the publisher is queued, and looked up before its turn.
 *
 * The worker's loop asks for one message after the other, by the function
 * walrcv_receive of libpqwalreceiver, and sleeps when it gets none.  In this
 * process, a function of this file replaces it.  That function calls the
 * original one; while look-ahead pays, it calls it early, and queues the
 * messages that have arrived.
 *
 * The function is replaced while the worker starts, by a callback at the end
 * of its first transaction: libpqwalreceiver has been loaded then, and nothing
 * has been received.  Workers that synchronize tables, which receive the data
 * of COPY by the same function, and workers that apply streamed transactions
 * in parallel, keep the server's.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "apply/apply.h"
#include "compat.h"

#ifdef LOOKAHEAD_HAS_APPLY

#include "access/xact.h"
#include "enabled.h"
#include "exec/judge_timing.h"
#include "exec/takeover.h"
#include "executor/instrument.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "read/page_read.h"
#include "replication/logicalproto.h"
#include "replication/walreceiver.h"
#include "replication/worker_internal.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

/* The most that is queued, but for the last message. */
#define QUEUE_BYTES (1024 * 1024)

/* Longer messages are left where libpq has them, and are the last ones. */
#define LONG_MESSAGE (64 * 1024)

/*
 * The most changes ahead; more bring nothing.  If all of them are looked up
 * again, their pages are cached: that must not make the judge end look-ahead.
 */
#define MAX_CHANGES 48

/* The most changes that are handed out between two rounds. */
#define ROUND 4

/* How many more changes of this kind are assumed to follow? */
#define MORE_CHANGES 512

typedef struct Message
{
	dlist_node	node;
	char	   *data;			/* if copied, it follows */
	int			length;			/* -1: the stream has ended, or failed */
	bool		is_row;			/* a change of a row, to be applied here */
	ApplyChange change;
} Message;

static struct
{
	dlist_head	messages;
	Message		in_place;		/* the last one, if it is not copied */
	bool		closed;			/* it is in use: nothing more may be added */
	ErrorData  *error;			/* of the connection; the last message */
	int			changes;		/* messages that are changes of rows */
	int			looked_up;		/* the first ones of these: in a round */
	int64		bytes;
	bool		in_stream;		/* after the last message */
}			queue = {DLIST_STATIC_INIT(queue.messages)};

static walrcv_receive_fn server_receive = NULL;
static bool first_is_out = false;	/* has the first message been handed out? */
static bool was_looked_up;		/* if it is a change of a row: in a round */

static ApplyCounters totals;	/* not yet added to the subscription's */
static Judge judge;
static int	since_round;		/* changes handed out since the last round */
static int64 reads_seen;		/* when a change was handed out */
static instr_time started;		/* then, too; zero: nothing is timed */
static instr_time spent;		/* on a change and on look-ahead */

/* Changes of settings begin everything anew, but for what is in the queue. */
static void
apply_follow_settings(void)
{
	static int	seen[4] = {-1, -1, -1, -1};
	int			now[4] = {lookahead_enabled && lookahead_apply,
						  lookahead_max_distance, lookahead_debug_force,
						  effective_io_concurrency};

	if (likely(memcmp(seen, now, sizeof(seen)) == 0))
		return;
	memcpy(seen, now, sizeof(seen));
	ApplyTablesForget();
	queue.looked_up = 0;
	JudgeInit(&judge, JUDGE_WRITES, lookahead_debug_force);
	JudgeRunsToEnd(&judge);
	JudgeSetMaximum(&judge, Min(2 * SettingsReads(effective_io_concurrency),
								MAX_CHANGES), 0);
	if (SettingsRefusal() != NOT_REFUSED || effective_io_concurrency == 0 ||
		!now[0])
		JudgeForbid(&judge);
}

/*
 * Add a message.  It is left where libpq has it, and nothing is added behind
 * it, if it is long, or not to be copied.
 */
static void
apply_queue_add(char *data, int length, bool copy)
{
	Message    *message = NULL;
	char		action = length > APPLY_HEADER && data[0] == 'w' ?
		data[APPLY_HEADER] : 0;

	if (action == LOGICAL_REP_MSG_STREAM_START)
		queue.in_stream = true;
	else if (action == LOGICAL_REP_MSG_STREAM_STOP)
		queue.in_stream = false;
	else if (action == LOGICAL_REP_MSG_RELATION)
		ApplyTableDescribe(data, length, queue.in_stream);

	/* libpq ends each with a zero byte */
	if (copy && length <= LONG_MESSAGE)
		message = MemoryContextAllocExtended(TopMemoryContext,
											 sizeof(Message) + length + 1,
											 MCXT_ALLOC_NO_OOM);
	queue.closed = message == NULL;
	if (queue.closed)
		message = &queue.in_place;
	else
		data = memcpy(message + 1, data, length + 1);
	*message = (Message) {.data = data, .length = length,
						  .is_row = !queue.in_stream &&
						  (action == LOGICAL_REP_MSG_INSERT ||
						   action == LOGICAL_REP_MSG_UPDATE ||
						   action == LOGICAL_REP_MSG_DELETE)};
	dlist_push_tail(&queue.messages, &message->node);
	queue.changes += message->is_row;
	queue.bytes += length;
}

/* Receive a message.  An error is kept, as an end, if others are before it. */
static int
apply_queue_receive(WalReceiverConn *conn, char **buffer, pgsocket *wait_fd)
{
	MemoryContext old = CurrentMemoryContext;
	volatile int length = 0;

	if (dlist_is_empty(&queue.messages))
		return server_receive(conn, buffer, wait_fd);
	PG_TRY();
	{
		length = server_receive(conn, buffer, wait_fd);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(TopMemoryContext);
		queue.error = CopyErrorData();
		FlushErrorState();
		MemoryContextSwitchTo(old);
		length = -1;
	}
	PG_END_TRY();
	return length;
}

/* Fetch what has arrived, as far as there is room for it. */
static void
apply_queue_drain(WalReceiverConn *conn, pgsocket *wait_fd)
{
	while (queue.changes <= judge.distance && queue.bytes < QUEUE_BYTES &&
		   !queue.closed)
	{
		char	   *buffer;
		int			length;

		CHECK_FOR_INTERRUPTS();
		length = apply_queue_receive(conn, &buffer, wait_fd);
		if (length == 0)
			return;
		apply_queue_add(buffer, length, length > 0);
	}
}

/*
 * Look up the changes in the queue, and let no error out but that this process
 * has no memory left.  That one may leave a lock without a list of owners until
 * the transaction ends, and the server crashes if it takes this lock again.  A
 * lack of shared memory, which has the same code, leaves nothing behind.
 */
static void
apply_round(void)
{
	MemoryContext old = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;
	dlist_iter	i;

	HOLD_INTERRUPTS();
	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		dlist_foreach(i, &queue.messages)
		{
			Message    *message = dlist_container(Message, node, i.cur);

			if (message->is_row)
				ApplyChangeAdd(&message->change, message->data,
							   message->length);
		}
		ApplyTablesRead(&totals);
		queue.looked_up = queue.changes;
		totals.max_changes = Max(totals.max_changes, (uint64) queue.changes);
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();		/* the error has released them */
		MemoryContextSwitchTo(old);
		error = CopyErrorData();
		FlushErrorState();
		ApplyTablesForget();
		queue.looked_up = 0;
		JudgeNoRoom(&judge);	/* not at once again */
		totals.errors++;
	}
	PG_END_TRY();
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(old);
	CurrentResourceOwner = owner;
	RESUME_INTERRUPTS();
	ApplyTotalsAdd(MySubscription->oid, &totals);
	since_round = 0;
	if (error == NULL)
		return;
	if (error->message_id != NULL &&
		strcmp(error->message_id, "out of memory") == 0)
		ReThrowError(error);
	FreeErrorData(error);
}

/*
 * Fill the queue, and look up what is in it if that was not done lately, or if
 * none of it has been looked up.
 */
static void
apply_look_ahead(WalReceiverConn *conn, pgsocket *wait_fd)
{
	int			step = Max(1, Min(judge.distance / 8, ROUND));
	instr_time	start = JudgeStartTiming(&judge);

	if (dlist_is_empty(&queue.messages) ||
		queue.changes <= judge.distance - step)
		apply_queue_drain(conn, wait_fd);
	if (queue.changes > 0 && (since_round >= step || queue.looked_up == 0) &&
		IsTransactionState() && in_remote_transaction)
		apply_round();
	JudgeStopTiming(&spent, start);
}

/*
 * The server has applied the change that was handed out: tell the judge.  A
 * change that came alone, so that nothing could be done for it, is no evidence
 * against look-ahead.
 */
static void
apply_finish(ApplyChange *change)
{
	int64		reads;

	JudgeStopTiming(&spent, started);

	/* now the pages that were read ahead for it are counted as read */
	ApplyChangePass(change);
	reads = pgBufferUsage.shared_blks_read - reads_seen;
	if (judge.mode == JUDGE_WATCH)
	{
		if (reads > 0)
			JudgeReadSeen(&judge, InvalidOid, 0);
	}
	else if (judge.mode == JUDGE_TRIAL || was_looked_up)
		JudgeTimedUnit(&judge, reads, &spent, queue.looked_up, MORE_CHANGES,
					   NULL);
	JudgeEntries(&judge, 0, queue.looked_up);
	INSTR_TIME_SET_ZERO(spent);
}

/* The server is done with the oldest message, which has been handed out. */
static void
apply_queue_remove(void)
{
	Message    *message = dlist_head_element(Message, node, &queue.messages);

	first_is_out = false;
	if (message->is_row)
		apply_finish(&message->change);
	dlist_delete(&message->node);
	queue.bytes -= message->length;
	if (message == &queue.in_place)
		queue.closed = false;
	else
		pfree(message);
}

/* Takes the place of walrcv_receive; see walreceiver.h. */
static int
apply_receive(WalReceiverConn *conn, char **buffer, pgsocket *wait_fd)
{
	Message    *message;

	if (conn != LogRepWorkerWalRcvConn)
		return server_receive(conn, buffer, wait_fd);
	if (first_is_out)
		apply_queue_remove();
	apply_follow_settings();
	if (judge.mode == JUDGE_AHEAD)
		apply_look_ahead(conn, wait_fd);
	if (dlist_is_empty(&queue.messages))
	{
		int			length = server_receive(conn, buffer, wait_fd);

		if (length <= 0)
		{
			/* the worker will sleep: leave nothing in flight */
			ApplyTotalsAdd(MySubscription->oid, &totals);
			HOLD_INTERRUPTS();
			PageReadsWaitSince(0);
			RESUME_INTERRUPTS();
			return length;
		}
		apply_queue_add(*buffer, length, false);
	}
	message = dlist_head_element(Message, node, &queue.messages);
	if (message->length < 0 && queue.error != NULL)
		ReThrowError(queue.error);
	first_is_out = true;
	if (message->is_row)
	{
		was_looked_up = queue.looked_up > 0;
		queue.looked_up -= was_looked_up;
		queue.changes--;
		since_round++;
		totals.changes += ApplyChangeArrive(&message->change);
		reads_seen = pgBufferUsage.shared_blks_read;
		started = JudgeStartTiming(&judge);
	}
	*buffer = message->data;
	return message->length;
}

/* At the end of a transaction: replace the function in a worker that starts. */
static void
apply_at_xact_event(XactEvent event, void *arg)
{
	static WalReceiverFunctionsType functions;

	if (event != XACT_EVENT_COMMIT || !InitializingApplyWorker ||
		!lookahead_apply || server_receive != NULL ||
		WalReceiverFunctions == NULL || MyLogicalRepWorker == NULL ||
		!am_leader_apply_worker())
		return;
	functions = *WalReceiverFunctions;
	server_receive = functions.walrcv_receive;
	functions.walrcv_receive = apply_receive;
	WalReceiverFunctions = &functions;
}

#endif							/* LOOKAHEAD_HAS_APPLY */

bool
ApplyCheckSetting(bool *newval, void **extra, GucSource source)
{
#ifndef LOOKAHEAD_HAS_APPLY
	if (*newval)
	{
		GUC_check_errcode(ERRCODE_FEATURE_NOT_SUPPORTED);
		GUC_check_errmsg("\"%s\" needs PostgreSQL 18 or later",
						 "pg_lookahead.apply");
		GUC_check_errdetail("Earlier versions do not read in the background.");
		return false;
	}
#endif
	return true;
}

void
ApplyInit(void)
{
#ifdef LOOKAHEAD_HAS_APPLY
	if (!process_shared_preload_libraries_in_progress)
		return;
	RegisterXactCallback(apply_at_xact_event, NULL);
	ApplyTotalsInit();
#endif
}
