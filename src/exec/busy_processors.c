/*-------------------------------------------------------------------------
 *
 * busy_processors.c
 *		Whether this process waits for a processor rather than for storage.
 *
 * The judge sees what look-ahead does for its own session.  Where as many
 * sessions write as the processors can serve, each of them finds that its rows
 * take less time with look-ahead, since its reads are made before those of the
 * others; but starting a read, which another process makes, costs processor
 * time, so that all of them together become slower.
 *
 * Some units of work are looked at from their beginning to their end, since
 * what is between two statements is not known: a session may have nothing to
 * do, or do other things.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "exec/judge_timing.h"
#include "storage/fd.h"

/* One unit of this number is looked at; an answer takes this many looks. */
#define LOOK_EVERY 4
#define LOOKS 32

/* 1 / SHARE of the time */
#define BUSY_SHARE 6

/*
 * The ns that this process has waited for a processor so far, by
 * Documentation/scheduler/sched-stats.rst of Linux; -1: unknown.
 */
static int64
processors_time_in_queue(void)
{
	char		text[128];
	int			file = BasicOpenFile("/proc/self/schedstat", O_RDONLY);
	ssize_t		length;
	unsigned long long ran,
				waited;

	if (file < 0)
		return -1;
	length = read(file, text, sizeof(text) - 1);
	close(file);
	text[Max(length, 0)] = '\0';
	if (sscanf(text, "%llu %llu", &ran, &waited) != 2)
		return -1;
	return (int64) waited;
}

/* When the unit that is looked at began; -1: none is. */
static int64 waited_before = -1;

void
ProcessorsBeginUnit(void)
{
	static uint32 units = 0;

	waited_before = units++ % LOOK_EVERY == 0 ? processors_time_in_queue() : -1;
}

bool
ProcessorsAreBusy(instr_time inside)
{
	static int	looks = 0;
	static int64 waited = 0;
	static int64 passed = 0;
	bool		busy;

	if (waited_before < 0)
		return false;
	waited += processors_time_in_queue() - waited_before;
	passed += INSTR_TIME_GET_NANOSEC(inside);
	if (++looks < LOOKS)
		return false;
	busy = waited * BUSY_SHARE >= passed;
	looks = 0;
	waited = passed = 0;
	return busy;
}
