/*-------------------------------------------------------------------------
 *
 * served.c
 *		The indexes whose VACUUM is served; see served.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/xact.h"
#include "commands/dbcommands.h"
#include "compat.h"
#include "lib/stringinfo.h"
#include "maintain/maintain.h"
#include "maintain/served.h"
#include "miscadmin.h"
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
log_autovacuum(void)
{
	StringInfoData text;
	ListCell   *cell;

	if (!AmAutoVacuumWorkerProcess() || log_min_duration < 0 ||
		!TimestampDifferenceExceeds(GetCurrentTransactionStartTimestamp(),
									GetCurrentTimestamp(), log_min_duration))
		return;

	initStringInfo(&text);
	foreach(cell, served_indexes)
	{
		const ServedIndex *served = lfirst(cell);

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
close_all(void)
{
	ResourceOwner owner = CurrentResourceOwner;
	ListCell   *cell;

	CurrentResourceOwner = TopTransactionResourceOwner;
	foreach(cell, served_indexes)
		index_close(((ServedIndex *) lfirst(cell))->index, NoLock);
	CurrentResourceOwner = owner;
	served_indexes = NIL;
}

/* After an error, the resource owner closes what is open. */
static void
at_xact_event(XactEvent event, void *arg)
{
	if (likely(served_indexes == NIL))
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			log_autovacuum();
			close_all();
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
ServedInit(void)
{
	RegisterXactCallback(at_xact_event, NULL);
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
	MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);
	ServedIndex *served = palloc0_object(ServedIndex);

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
	ListCell   *cell;

	if (!lookahead_index_vacuum)
		return NULL;
	foreach(cell, served_indexes)
	{
		ServedIndex *served = lfirst(cell);

		if (served->index == index)
			return served;
	}
	return NULL;
}

void
ServedPass(ServedIndex *served, uint64 blocks)
{
	if (!served->counted)
		StreamStatsAdd(served->user, STREAM_VACUUMS_SERVED, 1);
	served->counted = true;
	served->blocks += blocks;
	StreamStatsAdd(served->user, STREAM_BLOCKS, blocks);
	ereport(lookahead_report_vacuum ? INFO : DEBUG2,
			(errmsg("index \"%s\": pg_lookahead streamed " UINT64_FORMAT " pages",
					RelationGetRelationName(served->index), blocks)));
}
