/*-------------------------------------------------------------------------
 *
 * spi_worker.c
 *		A background worker that runs statements, each in a transaction of its
 *		own, and notes in a table how they ended.
 *
 * It never says when a statement of it starts, as a process does that answers
 * a client, and as few background workers do.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(run_in_worker);
extern PGDLLEXPORT void spi_worker_main(Datum database);

/* Run a query in a transaction; returns what SPI_getvalue() has of its rows. */
static char **
run(const char *query, uint64 *rows)
{
	char	  **values = NULL;

	StartTransactionCommand();
	SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_execute(query, false, 0);
	if (rows != NULL)
	{
		*rows = SPI_processed;
		values = MemoryContextAlloc(TopMemoryContext,
									SPI_processed * sizeof(char *));
		for (uint64 i = 0; i < SPI_processed; i++)
			values[i] = MemoryContextStrdup(
				TopMemoryContext, SPI_getvalue(SPI_tuptable->vals[i],
											   SPI_tuptable->tupdesc, 1));
	}
	SPI_finish();
	PopActiveSnapshot();
	CommitTransactionCommand();
	return values;
}

/* Run a statement; returns how it ended, by its SQLSTATE. */
static char *
run_caught(const char *statement)
{
	MemoryContext mcxt = CurrentMemoryContext;
	char	   *volatile state = "00000";

	PG_TRY();
	{
		run(statement, NULL);
	}
	PG_CATCH();
	{
		state = unpack_sql_state(geterrcode());
		MemoryContextSwitchTo(mcxt);
		FlushErrorState();
		AbortCurrentTransaction();
	}
	PG_END_TRY();
	return state;
}

void
spi_worker_main(Datum database)
{
	char	  **statements;
	uint64		n;

	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(database),
											  InvalidOid, 0);
	statements = run("SELECT statement FROM jobs ORDER BY n", &n);
	for (uint64 i = 0; i < n; i++)
	{
		char		note[100];

		snprintf(note, sizeof(note), "INSERT INTO ends VALUES (%d, '%s')",
				 (int) i, run_caught(statements[i]));
		run(note, NULL);
	}
}

/* run_in_worker(library text) returns its pid */
Datum
run_in_worker(PG_FUNCTION_ARGS)
{
	BackgroundWorker worker = {0};
	BackgroundWorkerHandle *handle;
	pid_t		pid;

	snprintf(worker.bgw_name, BGW_MAXLEN, "spi_worker");
	snprintf(worker.bgw_type, BGW_MAXLEN, "spi_worker");
	snprintf(worker.bgw_library_name, sizeof(worker.bgw_library_name), "%s",
			 text_to_cstring(PG_GETARG_TEXT_PP(0)));
	snprintf(worker.bgw_function_name, BGW_MAXLEN, "spi_worker_main");
	worker.bgw_flags =
		BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_main_arg = ObjectIdGetDatum(MyDatabaseId);
	worker.bgw_notify_pid = MyProcPid;
	if (!RegisterDynamicBackgroundWorker(&worker, &handle) ||
		WaitForBackgroundWorkerStartup(handle, &pid) != BGWH_STARTED)
		elog(ERROR, "no background worker could be started");
	PG_RETURN_INT32(pid);
}
