/*-------------------------------------------------------------------------
 *
 * stream_stats.c
 *		What the streamed paths of each access method have done; see
 *		stream_stats.h.
 *
 * A pass over an index is counted once, when it ends, so the counters need no
 * copy in the process.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "compat.h"
#include "observe/shared.h"
#include "observe/stream_stats.h"
#include "port/atomics.h"
#include "sql_result.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

typedef struct SharedStreamStats
{
	pg_atomic_uint64 counters[STREAM_USERS][STREAM_COUNTERS];
} SharedStreamStats;

PG_FUNCTION_INFO_V1(lookahead_index_vacuum_stats);

static void
init_shared(void *ptr)
{
	SharedStreamStats *stats = ptr;

	for (int user = 0; user < STREAM_USERS; user++)
		for (int counter = 0; counter < STREAM_COUNTERS; counter++)
			pg_atomic_init_u64(&stats->counters[user][counter], 0);
}

static SharedSegment segment = {"index VACUUMs", sizeof(SharedStreamStats),
								init_shared};

void
StreamStatsInit(void)
{
	SharedSegmentRegister(&segment);
}

void
StreamStatsAdd(StreamUser user, StreamCounter counter, uint64 n)
{
	SharedStreamStats *stats = SharedSegmentGet(&segment);

	if (stats != NULL)
		pg_atomic_fetch_add_u64(&stats->counters[user][counter], n);
}

/*
 * lookahead.index_vacuum_stats() returns setof record
 *
 * One row for each access method: its name, and the counters in the order of
 * StreamCounter.  Without shared memory there are no rows.
 */
Datum
lookahead_index_vacuum_stats(PG_FUNCTION_ARGS)
{
	static const char *const names[STREAM_USERS] = {
		[STREAM_USER_HASH] = "hash",
		[STREAM_USER_GIN] = "gin",
		[STREAM_USER_BLOOM] = "bloom",
	};
	static const Oid columns[] = {TEXTOID, INT8OID, INT8OID, INT8OID, INT8OID};
	ReturnSetInfo *rsinfo = ResultSet(fcinfo, lengthof(columns), columns);
	SharedStreamStats *stats = SharedSegmentGet(&segment);

	StaticAssertDecl(lengthof(columns) == 1 + STREAM_COUNTERS,
					 "a column for the name and for each counter");
	for (int user = 0; stats != NULL && user < STREAM_USERS; user++)
	{
		Datum		values[1 + STREAM_COUNTERS];
		bool		nulls[1 + STREAM_COUNTERS] = {false};

		values[0] = CStringGetTextDatum(names[user]);
		for (int counter = 0; counter < STREAM_COUNTERS; counter++)
		{
			pg_atomic_uint64 *value = &stats->counters[user][counter];

			values[1 + counter] = Int64GetDatum((int64)
												pg_atomic_read_u64(value));
		}
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
