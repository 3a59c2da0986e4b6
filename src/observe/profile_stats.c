/*-------------------------------------------------------------------------
 *
 * profile_stats.c
 *		Running totals of function profiles, over all processes: the view
 *		lookahead.function_stats.
 *
 * As in scan_stats.c, the totals live in a named segment of dynamic shared
 * memory, and a process adds to them at the end of its transactions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type_d.h"
#include "compat.h"
#include "funcapi.h"
#include "observe/profile.h"
#include "observe/profile_internal.h"
#include "port/atomics.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

typedef struct SharedSums
{
	pg_atomic_uint64 calls;
	pg_atomic_uint64 timed;
	pg_atomic_uint64 total_ns;
	pg_atomic_uint64 self_ns;
	pg_atomic_uint64 max_ns;
	pg_atomic_uint64 sum_sq_ns2;	/* the bits of a double */
	pg_atomic_uint64 histogram[PROFILE_BUCKETS];
} SharedSums;

typedef struct SharedProfile
{
	pg_atomic_uint64 since;
	pg_atomic_uint32 failed;	/* no record could be left, as was said */
	SharedSums	sums[PROFILE_NFUNCTIONS];
} SharedProfile;

static SharedProfile *shared = NULL;

/* What of lookahead_profile has been added. */
static ProfileSums added[PROFILE_NFUNCTIONS];

PG_FUNCTION_INFO_V1(lookahead_function_stats);
PG_FUNCTION_INFO_V1(lookahead_function_stats_reset);

static uint64
bits_of(double value)
{
	uint64		bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static double
double_of(uint64 bits)
{
	double		value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static void
init_shared(void *ptr)
{
	SharedProfile *profile = ptr;

	pg_atomic_init_u64(&profile->since, (uint64) GetCurrentTimestamp());
	pg_atomic_init_u32(&profile->failed, 0);
	for (int f = 0; f < PROFILE_NFUNCTIONS; f++)
	{
		SharedSums *sums = &profile->sums[f];

		pg_atomic_init_u64(&sums->calls, 0);
		pg_atomic_init_u64(&sums->timed, 0);
		pg_atomic_init_u64(&sums->total_ns, 0);
		pg_atomic_init_u64(&sums->self_ns, 0);
		pg_atomic_init_u64(&sums->max_ns, 0);
		pg_atomic_init_u64(&sums->sum_sq_ns2, bits_of(0));
		for (int i = 0; i < PROFILE_BUCKETS; i++)
			pg_atomic_init_u64(&sums->histogram[i], 0);
	}
}

void
ProfileStatsAttach(void)
{
	bool		found;

	if (shared == NULL)
		shared = LookaheadSharedMemory("pg_lookahead_function_stats",
									   sizeof(SharedProfile), init_shared,
									   &found);
}

/* Add the difference between two values of a counter. */
static void
add(pg_atomic_uint64 *counter, uint64 now, uint64 before)
{
	if (now != before)
		pg_atomic_fetch_add_u64(counter, (int64) (now - before));
}

static void
add_double(pg_atomic_uint64 *counter, double value)
{
	uint64		expected = pg_atomic_read_u64(counter);

	while (!pg_atomic_compare_exchange_u64(counter, &expected,
										   bits_of(double_of(expected) +
												   value)))
		;
}

void
ProfileStatsFlush(void)
{
	if (shared == NULL)
		return;
	for (int f = 0; f < PROFILE_NFUNCTIONS; f++)
	{
		const ProfileSums *now = &lookahead_profile.sums[f];
		ProfileSums *before = &added[f];
		SharedSums *sums = &shared->sums[f];

		if (now->calls == before->calls && now->timed == before->timed)
			continue;
		add(&sums->calls, now->calls, before->calls);
		add(&sums->timed, now->timed, before->timed);
		add(&sums->total_ns, now->total_ns, before->total_ns);
		add(&sums->self_ns, now->self_ns, before->self_ns);
		pg_atomic_monotonic_advance_u64(&sums->max_ns, now->max_ns);
		add_double(&sums->sum_sq_ns2, now->sum_sq_ns2 - before->sum_sq_ns2);
		for (int i = 0; i < PROFILE_BUCKETS; i++)
			add(&sums->histogram[i], now->histogram[i], before->histogram[i]);
		*before = *now;
	}
}

bool
ProfileStatsNoteFailure(bool failed)
{
	if (shared == NULL)
		return failed;
	return pg_atomic_exchange_u32(&shared->failed, failed) == 0 && failed;
}

/* A histogram as bigint[], cut after the last member that is not 0. */
static Datum
histogram_datum(SharedSums *sums)
{
	Datum		members[PROFILE_BUCKETS];
	int			n = 0;

	for (int i = 0; i < PROFILE_BUCKETS; i++)
	{
		uint64		calls = pg_atomic_read_u64(&sums->histogram[i]);

		members[i] = Int64GetDatum((int64) calls);
		if (calls != 0)
			n = i + 1;
	}
	return PointerGetDatum(construct_array_builtin(members, n, INT8OID));
}

/*
 * lookahead.function_stats() returns setof record
 *
 * A row for each function; times in milliseconds.  Includes what this session
 * has not made visible yet.
 */
Datum
lookahead_function_stats(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	ProfileStatsAttach();
	ProfileStatsFlush();
	for (int f = 0; f < PROFILE_NFUNCTIONS; f++)
	{
		SharedSums *sums = &shared->sums[f];
		int64		calls = (int64) pg_atomic_read_u64(&sums->calls);
		double		total = (double) pg_atomic_read_u64(&sums->total_ns);
		double		square = double_of(pg_atomic_read_u64(&sums->sum_sq_ns2));
		double		mean = calls > 0 ? total / calls : 0;
		double		variance = calls > 0 ? square / calls - mean * mean : 0;
		Datum		values[10];
		bool		nulls[10] = {0};
		int			i = 0;

		values[i++] = CStringGetTextDatum(ProfileFunctionName(f));
		values[i++] = CStringGetTextDatum(ProfileFunctionSource(f));
		values[i++] = Int64GetDatum(calls);
		values[i++] = Int64GetDatum((int64) pg_atomic_read_u64(&sums->timed));
		values[i++] = Float8GetDatum(total / 1e6);
		values[i++] =
			Float8GetDatum((double) pg_atomic_read_u64(&sums->self_ns) / 1e6);
		nulls[i] = f == PROFILE_SERVER_READ;
		values[i++] =
			Float8GetDatum((double) pg_atomic_read_u64(&sums->max_ns) / 1e6);
		nulls[i] = f == PROFILE_SERVER_READ || calls == 0;
		values[i++] = Float8GetDatum(variance > 0 ? sqrt(variance) / 1e6 : 0);
		nulls[i] = f == PROFILE_SERVER_READ;
		values[i++] = histogram_datum(sums);
		values[i++] = TimestampTzGetDatum(
			(TimestampTz) pg_atomic_read_u64(&shared->since));
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/*
 * lookahead.function_stats_reset() returns void
 *
 * Sets the totals to zero.  What another process has measured and not added
 * yet will be added afterwards.
 */
Datum
lookahead_function_stats_reset(PG_FUNCTION_ARGS)
{
	ProfileStatsAttach();
	ProfileStatsFlush();
	for (int f = 0; f < PROFILE_NFUNCTIONS; f++)
	{
		SharedSums *sums = &shared->sums[f];

		pg_atomic_write_u64(&sums->calls, 0);
		pg_atomic_write_u64(&sums->timed, 0);
		pg_atomic_write_u64(&sums->total_ns, 0);
		pg_atomic_write_u64(&sums->self_ns, 0);
		pg_atomic_write_u64(&sums->max_ns, 0);
		pg_atomic_write_u64(&sums->sum_sq_ns2, bits_of(0));
		for (int i = 0; i < PROFILE_BUCKETS; i++)
			pg_atomic_write_u64(&sums->histogram[i], 0);
	}
	pg_atomic_write_u64(&shared->since, (uint64) GetCurrentTimestamp());
	PG_RETURN_VOID();
}
