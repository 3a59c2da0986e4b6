/*-------------------------------------------------------------------------
 *
 * read_clock.h
 *		The clock of a policy: are reads slow, and when is that asked again?
 *
 * All policies of this extension read ahead only while reads are slow, which
 * they learn by timing some.  What they share is here, and is pure as they are:
 *
 *	runs		rests		reads were fast, or look-ahead useless
 *	rests		runs		"rest" reads have gone by; that number doubles each
 *							time
 *
 * A slow read is one that takes FAST_READ_US or more.  A read that takes less
 * comes from the kernel's page cache, where handing it to another process
 * costs more than waiting for it.  FAST_READS_TO_REST fast reads in a row let
 * the clock rest.
 *
 * slow_reads_wanted slow reads in a row tell that reads are slow: that is
 * SLOW_READS_TO_START at first, and 1 if another node of the query has seen
 * that they are.  It doubles whenever look-ahead proves useless, which it is
 * where for each unit that was read ahead and used, more than MAX_UNUSED were
 * not used; and it shrinks again when it proves useful.
 *
 * Reads that are ahead of the scan cannot be timed.  So look-ahead is granted
 * for a number of reads only, which doubles with each grant.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_READ_CLOCK_H
#define PG_LOOKAHEAD_READ_CLOCK_H

#define FAST_READ_US 25
#define FAST_READS_TO_REST 3
#define SLOW_READS_TO_START 2
#define SLOW_READS_MAX 64
#define REST_MIN 32
#define REST_MAX 1024
#define GRANT_MIN 1024
#define GRANT_MAX 8192
#define MAX_UNUSED 3

typedef struct ReadClock
{
	int			slow_reads;		/* consecutive slow reads */
	int			slow_reads_wanted;	/* to start; 0: SLOW_READS_TO_START */
	int			fast_reads;		/* consecutive fast reads */
	int			rest;			/* reads that are not to be timed */
	int			last_rest;		/* length of the last rest; 0: there was none */
	int			granted;		/* reads ahead until the next question */
	int			reads;			/* how many of the granted reads were made */
} ReadClock;

/* Return twice a number, within bounds. */
static inline int
ReadClockDoubled(int number, int least, int most)
{
	return Min(Max(number * 2, least), most);
}

static inline void
ReadClockRest(ReadClock *clock, int least, int most)
{
	clock->fast_reads = 0;
	clock->rest = clock->last_rest =
		ReadClockDoubled(clock->last_rest, least, most);
}

/* Start or continue look-ahead: begin to count a new grant of reads. */
static inline void
ReadClockGrant(ReadClock *clock, int least, int most)
{
	clock->reads = 0;
	clock->granted = ReadClockDoubled(clock->granted, least, most);
}

/* Begin to time reads again; forget those timed before. */
static inline void
ReadClockStart(ReadClock *clock)
{
	clock->slow_reads = clock->fast_reads = 0;
}

/*
 * Note that the scan waited for a read.  read_us: its time in microseconds,
 * or -1 if it was not timed.  others_slow: another node of the query has
 * found that reads are slow.  Returns whether reads have turned out to be
 * slow.
 */
static inline bool
ReadClockRead(ReadClock *clock, double read_us, bool others_slow)
{
	int			wanted = Max(clock->slow_reads_wanted, SLOW_READS_TO_START);

	if (read_us < 0)
		clock->rest--;
	else if (read_us < FAST_READ_US)
	{
		clock->slow_reads = 0;
		if (++clock->fast_reads >= FAST_READS_TO_REST)
			ReadClockRest(clock, REST_MIN, REST_MAX);
	}
	else
	{
		clock->fast_reads = 0;
		if (others_slow && wanted == SLOW_READS_TO_START)
			wanted = 1;
		return ++clock->slow_reads >= wanted;
	}
	return false;
}

/*
 * Was look-ahead useless?  used, unused: pages that were read ahead lately and
 * have been used, or have not.
 */
static inline bool
ReadClockWasUseless(ReadClock *clock, uint64 used, uint64 unused)
{
	int			wanted = Max(clock->slow_reads_wanted, SLOW_READS_TO_START);
	bool		useless = unused > MAX_UNUSED * used;

	if (useless)
		wanted = Min(wanted * 2, SLOW_READS_MAX);
	else if (used > 0)
		wanted--;
	clock->slow_reads_wanted = wanted;
	return useless;
}

#endif							/* PG_LOOKAHEAD_READ_CLOCK_H */
