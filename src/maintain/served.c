/*-------------------------------------------------------------------------
 *
 * served.c
 *		The indexes whose VACUUM is served; see maintain.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/dbcommands.h"
#include "compat.h"
#include "enabled.h"
#include "lib/stringinfo.h"
#include "maintain/maintain.h"
#include "miscadmin.h"
#include "observe/progress.h"
#include "postmaster/autovacuum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

/* ServedIndex; list and elements are in TopTransactionContext */
static List *served_indexes = NIL;

/* The table, as autovacuum's log names it, and when that tells of it. */
static char *table_name = NULL;
static int	log_min_duration = -1;

/*
 * autovacuum's own message about a table has been written, if the VACUUM took
 * long enough; tell which of its indexes were read ahead.
 */
static void
served_log_autovacuum(void)
{
	StringInfoData text;

	if (!AmAutoVacuumWorkerProcess() || log_min_duration < 0 ||
		!TimestampDifferenceExceeds(GetCurrentTransactionStartTimestamp(),
									GetCurrentTimestamp(), log_min_duration))
		return;

	initStringInfo(&text);
	foreach_ptr(const ServedIndex, served, served_indexes)
	{
		if (served->counted)
			appendStringInfo(&text, "%sindex \"%s\": " UINT64_FORMAT " pages",
							 text.len == 0 ? "" : ", ",
							 RelationGetRelationName(served->index),
							 served->blocks);
	}
	if (text.len > 0)
		ereport(LOG,
				(errmsg("automatic vacuum of table \"%s\": pg_lookahead streamed pages of indexes", table_name),
				 errdetail_internal("%s", text.data)));
	pfree(text.data);
}

static void
served_close_all(void)
{
	ResourceOwner owner = CurrentResourceOwner;
	CurrentResourceOwner = TopTransactionResourceOwner;
	foreach_ptr(ServedIndex, served, served_indexes)
		index_close(served->index, NoLock);
	CurrentResourceOwner = owner;
	served_indexes = NIL;
}

/* After an error, the resource owner closes what is open. */
static void
served_at_xact_event(XactEvent event, void *arg)
{
	if (likely(served_indexes == NIL))
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			served_log_autovacuum();
			served_close_all();
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
			served_indexes = NIL;
			break;
		default:
			break;
	}
}

void
ServedBegin(Relation table)
{
	const StdRdOptions *options = (StdRdOptions *) table->rd_options;

	if (!AmAutoVacuumWorkerProcess())
		return;
	log_min_duration = options != NULL &&
		LookaheadVacuumLogDuration(options) != -1 ?
		LookaheadVacuumLogDuration(options) : Log_autovacuum_min_duration;
	if (log_min_duration >= 0)
	{
		MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);

		table_name = psprintf("%s.%s.%s", get_database_name(MyDatabaseId),
							  get_namespace_name(RelationGetNamespace(table)),
							  RelationGetRelationName(table));
		MemoryContextSwitchTo(caller);
	}
}

void
ServedAdd(Relation index, StreamUser user)
{
	static bool registered = false;
	MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);
	ServedIndex *served = palloc0_object(ServedIndex);

	XactCallbackOnce(&registered, served_at_xact_event);

	/* it stays open beyond all subtransactions */
	Assert(CurrentResourceOwner == TopTransactionResourceOwner);
	served->index = index;
	served->user = user;
	served_indexes = lappend(served_indexes, served);
	MemoryContextSwitchTo(caller);
}

bool
ServedAny(void)
{
	return served_indexes != NIL;
}

ServedIndex *
ServedFind(Relation index)
{
	foreach_ptr(ServedIndex, served, served_indexes)
		if (served->index == index && lookahead_enabled &&
			lookahead_index_vacuum)
			return served;
	return NULL;
}

void
ServedPassBegin(Sweep *sweep, const IndexVacuumInfo *info)
{
	ProgressBegin("VACUUM", RelationGetRelid(info->index), false);
	sweep->rel = info->index;
	sweep->maintenance = true;
	sweep->strategy = info->strategy;
	SweepBegin(sweep);
}

Buffer
ServedPassNext(Sweep *sweep)
{
	LookaheadVacuumDelay();
	return SweepNext(sweep);
}

void
ServedPassEnd(ServedIndex *served, Sweep *sweep, uint64 blocks)
{
	SweepEnd(sweep);
	ProgressEnd();
	TotalsAddStream(served->user,
					(StreamCounters) {.vacuums_served = !served->counted,
									  .blocks = blocks});
	served->counted = true;
	served->blocks += blocks;
	ereport(lookahead_report_vacuum ? INFO : DEBUG2,
			(errmsg("index \"%s\": pg_lookahead streamed " UINT64_FORMAT " pages",
					RelationGetRelationName(served->index), blocks)));
}
