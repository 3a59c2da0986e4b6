/*-------------------------------------------------------------------------
 *
 * apply.c
 *		The worker that applies changes of a subscription: what has arrived from
 *		the publisher is queued, and looked up before its turn.
 *
 * The worker's loop asks for one message after the other, by the function
 * walrcv_receive of libpqwalreceiver, and sleeps when it gets none.  In this
 * process another function takes its place, which calls it:
 *
 *	drain		while look-ahead pays, fetch what has arrived into a queue
 *	round		look up the changes in the queue, and start reads
 *	hand out	return the oldest message
 *
 * Invariants:
 * - The server gets the messages that the publisher sent, each once and in
 *	 their order, and nothing else.  It alone decides what is applied,
 *	 acknowledged and skipped.
 * - "Nothing has arrived", the end of the stream and an error of the connection
 *	 are passed on when the queue is empty.
 * - A round happens only within a transaction that the worker has begun to
 *	 apply a change.  It is a subtransaction that writes nothing and is rolled
 *	 back in any case, so that nothing stays locked, open or pinned.
 * - An error ends the round, and look-ahead for a while.  The server does not
 *	 see it.  Interrupts are held meanwhile, since what they raise is the
 *	 server's.  So a round waits for reads, but for no lock.
 * - The queue holds at most QUEUE_BYTES and one message more, which is left
 *	 where libpq has it.
 *
 * The function is replaced while the worker starts, by a callback at the end of
 * its first transaction: libpqwalreceiver has been loaded then, and nothing has
 * been received.  Workers that synchronize tables, which receive the data of
 * COPY by the same function, and workers that apply streamed transactions in
 * parallel, keep the server's.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "apply/apply.h"
#include "compat.h"

#ifdef LOOKAHEAD_HAS_APPLY

#include "access/xact.h"
#include "apply/table.h"
#include "enabled.h"
#include "exec/judge.h"
#include "exec/settings.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "read/page_read.h"
#include "replication/logicalproto.h"
#include "replication/walreceiver.h"
#include "replication/worker_internal.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

/* The most messages in the queue; a transaction has two besides its changes. */
#define QUEUE_SIZE 256
#define QUEUE_BYTES (1024 * 1024)

/* Longer messages are left where libpq has them, and are the last ones. */
#define LONG_MESSAGE (64 * 1024)

/* More changes ahead than this bring nothing. */
#define MAX_CHANGES 64

/* The most changes that are handed out between two rounds. */
#define ROUND 4

/* With how many more changes of the kind is reckoned? */
#define MORE_CHANGES 512

/* Changes without look-ahead after an error. */
#define REST 4096

typedef struct Message
{
	char	   *data;
	int			length;
	bool		is_copy;		/* if not, it is in libpq's buffer */
	bool		is_row;			/* a change of a row, to be applied here */
	ApplyChange change;
} Message;

static struct
{
	Message		messages[QUEUE_SIZE];
	int			first;
	int			n;
	int			changes;		/* messages that are changes of rows */
	Size		bytes;			/* of copies */
	bool		in_stream;		/* after the last message */
	bool		closed;			/* nothing may be added before it is empty */
	bool		ended;			/* so has the stream */
	ErrorData  *error;			/* of the connection */
}			queue;

static walrcv_receive_fn server_receive = NULL;
static Message *handed_out = NULL;	/* a change of a row */

static ApplyCounters totals;	/* not yet added to the subscription's */
static Judge judge;
static int	rest;				/* changes until look-ahead may go on */
static int	since_round;		/* changes handed out since the last round */
static int64 reads_seen;		/* when a change was handed out */
static instr_time started;		/* zero: nothing is timed */
static instr_time spent;		/* on a change and on look-ahead */

/* Changes of settings begin everything anew, but for what is in the queue. */
static void
apply_follow_settings(void)
{
	static int	seen[4] = {-1, -1, -1, -1};
	int			now[4] = {lookahead_enabled && lookahead_apply,
						  lookahead_max_distance, lookahead_debug_force,
						  effective_io_concurrency};
	int			reads;

	if (likely(memcmp(seen, now, sizeof(seen)) == 0))
		return;
	memcpy(seen, now, sizeof(seen));
	reads = SettingsReads(effective_io_concurrency);
	ApplyTablesReset();
	JudgeInit(&judge, JUDGE_WRITES, lookahead_debug_force);
	JudgeRunsToEnd(&judge);
	JudgeSetMaximum(&judge, Min(2 * reads, MAX_CHANGES), 0);
	if (reads == 0 || effective_io_concurrency == 0 || !now[0])
		JudgeForbid(&judge);
}

/* Make what was counted visible. */
static void
apply_count(void)
{
	if (totals.changes > 0 || totals.errors > 0)
		ApplyTotalsAdd(MySubscription->oid, &totals);
	totals = (ApplyCounters) {0};
}

static inline Message *
queue_at(int i)
{
	return &queue.messages[(queue.first + i) % QUEUE_SIZE];
}

/* Add a message.  It is left where it is if it is long, or not to be copied. */
static void
queue_add(char *data, int length, bool copy)
{
	Message    *message = queue_at(queue.n);
	char		action = length > APPLY_HEADER && data[0] == 'w' ?
		data[APPLY_HEADER] : 0;
	char	   *copied = NULL;

	if (action == LOGICAL_REP_MSG_STREAM_START)
		queue.in_stream = true;
	else if (action == LOGICAL_REP_MSG_STREAM_STOP)
		queue.in_stream = false;
	else if (action == LOGICAL_REP_MSG_RELATION)
		ApplyTableDescribe(data, length, queue.in_stream);

	/* libpq ends each with a zero byte */
	if (copy && length <= LONG_MESSAGE)
		copied = MemoryContextAllocExtended(TopMemoryContext, length + 1,
											MCXT_ALLOC_NO_OOM);
	if (copied != NULL)
	{
		data = memcpy(copied, data, length + 1);
		queue.bytes += length;
	}
	*message = (Message) {.data = data, .length = length,
						  .is_copy = copied != NULL,
						  .is_row = !queue.in_stream &&
						  (action == LOGICAL_REP_MSG_INSERT ||
						   action == LOGICAL_REP_MSG_UPDATE ||
						   action == LOGICAL_REP_MSG_DELETE)};
	queue.closed = copied == NULL;
	queue.n++;
	queue.changes += message->is_row;
}

/* Receive a message.  An error is kept if others are before it. */
static int
queue_receive(WalReceiverConn *conn, char **buffer, pgsocket *wait_fd)
{
	MemoryContext old = CurrentMemoryContext;
	volatile int length = 0;

	if (queue.n == 0)
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
	}
	PG_END_TRY();
	return length;
}

/* Fetch what has arrived, as far as there is room for it. */
static void
queue_drain(WalReceiverConn *conn, pgsocket *wait_fd)
{
	while (queue.n < QUEUE_SIZE && queue.changes <= judge.distance &&
		   queue.bytes < QUEUE_BYTES && !queue.closed && !queue.ended &&
		   queue.error == NULL)
	{
		char	   *buffer;
		int			length;

		CHECK_FOR_INTERRUPTS();
		length = queue_receive(conn, &buffer, wait_fd);
		queue.ended = length < 0;
		if (length <= 0)
			return;
		queue_add(buffer, length, true);
	}
}

/* Look up the changes in the queue. */
static void
round_look_up(void)
{
	int			rows = 0;

	for (int i = 0; i < queue.n; i++)
	{
		Message    *message = queue_at(i);

		if (!message->is_row)
			continue;
		ApplyChangeAdd(&message->change, message->data, message->length);
		rows++;
	}
	ApplyTablesRead();
	totals.max_changes = Max(totals.max_changes, (uint64) rows);
}

/* See the head of this file. */
static void
apply_round(void)
{
	MemoryContext old = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	HOLD_INTERRUPTS();
	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		round_look_up();
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();		/* the error has let go of them */
		FlushErrorState();
		ApplyTablesReset();
		rest = REST;
		totals.errors++;
	}
	PG_END_TRY();
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(old);
	CurrentResourceOwner = owner;
	RESUME_INTERRUPTS();
	ApplyTablesEnd(&totals);
	apply_count();
	since_round = 0;
}

/* What was begun is over: count its time, if it was timed. */
static void
apply_stop_timing(void)
{
	instr_time	now;

	if (INSTR_TIME_IS_ZERO(started))
		return;
	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_ACCUM_DIFF(spent, now, started);
	INSTR_TIME_SET_ZERO(started);
}

/* Fill the queue and look up what is in it, if it is time for that. */
static void
apply_look_ahead(WalReceiverConn *conn, pgsocket *wait_fd)
{
	int			step = Max(1, Min(judge.distance / 8, ROUND));

	if (judge.timed)
		INSTR_TIME_SET_CURRENT(started);
	if (queue.n == 0 || queue.changes <= judge.distance - step)
		queue_drain(conn, wait_fd);
	if (queue.changes > 0 && since_round >= step && IsTransactionState() &&
		in_remote_transaction)
		apply_round();
	apply_stop_timing();
}

/* The server has applied the change that was handed out: tell the judge. */
static void
apply_finish(void)
{
	bool		in_trial = judge.mode == JUDGE_TRIAL;
	int64		reads;

	apply_stop_timing();

	/* now the pages that were read ahead for it are counted as read */
	ApplyChangePass(&handed_out->change);
	reads = pgBufferUsage.shared_blks_read - reads_seen;
	handed_out = NULL;
	if (judge.mode != JUDGE_WATCH)
		JudgeUnit(&judge, (int) Min(reads, PG_INT32_MAX),
				  INSTR_TIME_GET_NANOSEC(spent) / 1000.0,
				  in_trial ? 0 : queue.changes,
				  in_trial && reads > 0 ? MORE_CHANGES : 0, false);
	else if (reads > 0)
		JudgeReadSeen(&judge, NULL);
	JudgeEntries(&judge, 0, queue.changes);
	INSTR_TIME_SET_ZERO(spent);
	if (rest > 0)
		rest--;
}

/* Remove the oldest message, which has been handed out. */
static void
queue_remove(void)
{
	Message    *message = queue_at(0);

	if (message->is_copy)
	{
		queue.bytes -= message->length;
		pfree(message->data);
	}
	queue.n--;
	queue.closed &= queue.n > 0;

	/* messages that come one by one need no more than one place */
	queue.first = queue.n == 0 ? 0 : (queue.first + 1) % QUEUE_SIZE;
}

/* Takes the place of walrcv_receive; see walreceiver.h. */
static int
apply_receive(WalReceiverConn *conn, char **buffer, pgsocket *wait_fd)
{
	static bool first_is_out = false;
	Message    *message;

	if (conn != LogRepWorkerWalRcvConn)
		return server_receive(conn, buffer, wait_fd);
	if (handed_out != NULL)
		apply_finish();
	if (first_is_out)
		queue_remove();
	first_is_out = false;
	apply_follow_settings();
	if (judge.mode == JUDGE_AHEAD && rest == 0 &&
		SettingsRefusal() == NOT_REFUSED)
		apply_look_ahead(conn, wait_fd);
	if (queue.n == 0)
	{
		int			length;

		if (queue.error != NULL)
			ReThrowError(queue.error);
		length = queue.ended ? -1 : server_receive(conn, buffer, wait_fd);
		if (length <= 0)
		{
			/* the worker will sleep: leave nothing in flight */
			apply_count();
			HOLD_INTERRUPTS();
			PageReadsEnd();
			RESUME_INTERRUPTS();
			return length;
		}
		queue_add(*buffer, length, false);
	}
	message = queue_at(0);
	first_is_out = true;
	if (message->is_row)
	{
		handed_out = message;
		queue.changes--;
		since_round++;
		totals.changes += message->change.by_key || message->change.entries;
		ApplyChangeArrive(&message->change);
		reads_seen = pgBufferUsage.shared_blks_read;
		if (judge.timed)
			INSTR_TIME_SET_CURRENT(started);
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

bool
ApplyCheckSetting(bool *newval, void **extra, GucSource source)
{
	return true;
}

void
ApplyInit(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	RegisterXactCallback(apply_at_xact_event, NULL);
	ApplyTotalsInit();
}

#else

bool
ApplyCheckSetting(bool *newval, void **extra, GucSource source)
{
	if (!*newval)
		return true;
	GUC_check_errcode(ERRCODE_FEATURE_NOT_SUPPORTED);
	GUC_check_errmsg("\"%s\" needs PostgreSQL 18 or later", "pg_lookahead.apply");
	GUC_check_errdetail("Servers before 18 do not read in the background.");
	return false;
}

void
ApplyInit(void)
{
}

#endif
