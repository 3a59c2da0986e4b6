/*-------------------------------------------------------------------------
 *
 * sweep.c
 *		Reading a range of blocks of one relation fork, in order and ahead.
 *
 * The stream is told that everything will be read (READ_STREAM_FULL), so it
 * combines blocks into large reads from the start, and it reads into a
 * bulk-read ring (or its caller's own), so a sweep over a large relation does
 * not empty shared buffers.
 *
 * Batch mode lets several reads be handed to the kernel in one call, but
 * forbids the callback to wait for anything.  A skip callback reads visibility
 * and free space maps, so there is no batch mode with one.
 *
 * When the sweep hands out one block it has the next one pinned, and has asked
 * the CPU for the lines that are looked at first.  To wait for these is a tenth
 * of a sweep over cached pages; without this, such a sweep is slower than a
 * loop around ReadBuffer.
 *
 * Where it is not clear that many reads in flight are better than the kernel's
 * own read-ahead, the range is read in legs, to find out: see depth.c.
 *
 * Where pg_lookahead.max_read_rate is set, the stream is given no more blocks
 * than the rate allows (read_rate.h), and ends.  The wait for more comes when
 * the caller asks for the next block, at a moment when the sweep holds no pin.
 *
 * What the stream hands back is checked against what it was asked for.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "miscadmin.h"
#include "observe/profile.h"
#include "observe/progress.h"
#include "storage/bufmgr.h"
#include "read/sweep.h"
#include "utils/rel.h"

/* Bytes for which the CPU is asked early, and of a line of its caches. */
#define ITEM_BYTES 512
#define CACHE_LINE 64

/* Names the relation, and the block if one is being looked at. */
static void
sweep_error_context(void *arg)
{
	Sweep	   *sweep = (Sweep *) arg;

	if (BlockNumberIsValid(sweep->current))
		errcontext("while examining block %u of relation \"%s\"",
				   sweep->current, RelationGetRelationName(sweep->rel));
	else
		errcontext("while reading relation \"%s\" ahead",
				   RelationGetRelationName(sweep->rel));
}

/* The block of an item. */
static inline BlockNumber
sweep_item_block(const Sweep *sweep, BlockNumber item)
{
	return sweep->locate ? sweep->locate(item, sweep->arg) : item;
}

/*
 * May the stream be given one more block?  If not, that is noted, since the
 * limit may be gone when the stream has handed out what it was given.
 */
static inline bool
sweep_rate_allows(Sweep *sweep)
{
	if (ReadRateAllows(sweep->throttled))
		return true;
	sweep->held_up = true;
	return false;
}

/* The stream's question "which block next?", for a sweep that reads all. */
static BlockNumber
sweep_next_block(ReadStream *stream, void *callback_private_data,
				 void *per_buffer_data)
{
	Sweep	   *sweep = (Sweep *) callback_private_data;

	if (!sweep_rate_allows(sweep) ||
		(sweep->ahead >= sweep->depth.stop &&
		 !DepthExtendLeg(&sweep->depth, sweep->end)))
		return InvalidBlockNumber;
	ReadRateUse(sweep->throttled);
	return sweep_item_block(sweep, sweep->ahead++);
}

/*
 * The stream's callback for a sweep that skips blocks.  A long run of skipped
 * blocks is passed over in one call, so that interrupts are checked here, too.
 */
static BlockNumber
sweep_next_unskipped_block(ReadStream *stream, void *callback_private_data,
						   void *per_buffer_data)
{
	Sweep	   *sweep = (Sweep *) callback_private_data;

	while (sweep_rate_allows(sweep) &&
		   (sweep->ahead < sweep->depth.stop ||
			DepthExtendLeg(&sweep->depth, sweep->end)))
	{
		BlockNumber block = sweep->ahead++;

		CHECK_FOR_INTERRUPTS();
		if (!PROFILED(PROFILE_STREAM_CALLBACK,
					  sweep->skip(block, sweep->arg)))
		{
			ReadRateUse(sweep->throttled);
			return block;
		}
		sweep->skipped++;
	}
	return InvalidBlockNumber;
}

/*
 * The stream has no more: were all blocks that it was asked for, of its leg if
 * it was not held up, accounted for?
 */
static void
sweep_check_complete(Sweep *sweep, bool held_up)
{
	BlockNumber range = (held_up ? sweep->ahead : sweep->depth.stop) -
		sweep->first;

	if (sweep->ahead - sweep->first != range ||
		sweep->nreturned + sweep->skipped != range)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("reading ahead in relation \"%s\" ended early, before block %u",
						RelationGetRelationName(sweep->rel),
						sweep_item_block(sweep, sweep->expected)),
				 errdetail("Of %u blocks, %u were read and %u skipped.",
						   range, sweep->nreturned, sweep->skipped)));
}

/*
 * Begin a stream for the leg that is to be read now.  A stream takes the
 * number of reads in flight from the settings when it begins; 0 makes its
 * process read by itself, as a shallow leg does.  A tablespace's own setting
 * overrides this: then both kinds of legs of the trial are alike.
 */
static void
sweep_begin_stream(Sweep *sweep)
{
	int			flags = READ_STREAM_FULL |
		(sweep->maintenance ? READ_STREAM_MAINTENANCE : 0) |
		(sweep->skip ? 0 : READ_STREAM_USE_BATCHING);
	int			concurrency = effective_io_concurrency;
	int			maintenance_concurrency = maintenance_io_concurrency;
	MemoryContext caller = MemoryContextSwitchTo(sweep->mcxt);

	PG_TRY();
	{
		if (!sweep->depth.deep)
		{
			effective_io_concurrency = 0;
			maintenance_io_concurrency = 0;
		}
		sweep->stream =
			read_stream_begin_relation(flags, sweep->strategy, sweep->rel,
									   sweep->fork,
									   sweep->skip ?
									   sweep_next_unskipped_block :
									   sweep_next_block, sweep, 0);
	}
	PG_FINALLY();
	{
		effective_io_concurrency = concurrency;
		maintenance_io_concurrency = maintenance_concurrency;
	}
	PG_END_TRY();

	MemoryContextSwitchTo(caller);
}

/* Go on with the range or leg that has been set. */
static void
sweep_continue_stream(Sweep *sweep, bool was_deep)
{
	if (sweep->depth.deep == was_deep)
		read_stream_reset(sweep->stream);
	else
	{
		read_stream_end(sweep->stream);
		sweep_begin_stream(sweep);
	}
}

/*
 * The block after the last one that was taken, or InvalidBuffer: at the end of
 * the range, or, with "dropped" set, where the rate has to be kept first.
 */
static Buffer
sweep_next_buffer(Sweep *sweep)
{
	for (;;)
	{
		bool		was_deep = sweep->depth.deep;
		bool		held_up;
		Buffer		buffer;

		buffer = PROFILED(PROFILE_STREAM_NEXT,
						  read_stream_next_buffer(sweep->stream, NULL));
		if (likely(BufferIsValid(buffer)))
			return buffer;
		held_up = sweep->held_up && sweep->ahead < sweep->end;
		sweep->held_up = false;
		sweep_check_complete(sweep, held_up);
		if (held_up)
		{
			sweep->dropped = true;
			read_stream_reset(sweep->stream);
			return InvalidBuffer;
		}
		if (sweep->depth.stop == sweep->end)
			return InvalidBuffer;

		DepthNextLeg(&sweep->depth, sweep->end);
		sweep_continue_stream(sweep, was_deep);
	}
}

/*
 * Take one block; check that it is the one that is due.
 */
static void
sweep_take_upcoming(Sweep *sweep)
{
	BlockNumber block;

	sweep->upcoming = sweep_next_buffer(sweep);
	if (unlikely(!BufferIsValid(sweep->upcoming)))
		return;

	/* If blocks may be skipped, it need only be a later one. */
	block = BufferGetBlockNumber(sweep->upcoming);
	if (unlikely(sweep->expected >= sweep->end ||
				 (sweep->skip ?
				  block < sweep->expected || block >= sweep->end :
				  block != sweep_item_block(sweep, sweep->expected))))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("reading ahead in relation \"%s\" gave block %u out of order",
						RelationGetRelationName(sweep->rel), block)));
	sweep->upcoming_block = block;
	sweep->expected = (sweep->skip ? block : sweep->expected) + 1;
	sweep->nreturned++;

	/*
	 * Ask the CPU for the header, the special area, and line pointers.  (Not in
	 * an inline function of its own: gcc takes that for one without effect.)
	 */
#ifdef __GNUC__
	{
		char	   *page = BufferGetPage(sweep->upcoming);
		int			wanted = sweep->items ? ITEM_BYTES : CACHE_LINE;

		for (int i = 0; i < wanted; i += CACHE_LINE)
			__builtin_prefetch(page + i);
		__builtin_prefetch(page + BLCKSZ - 1);
	}
#endif
}

/* Set the range of items to read. */
static void
sweep_set_range(Sweep *sweep, BlockNumber first, BlockNumber end)
{
	sweep->first = first;
	sweep->end = Max(first, end);
	sweep->ahead = first;
	sweep->expected = first;
	sweep->told = first;
	sweep->skipped = 0;
	sweep->nreturned = 0;
	ProgressExpect(sweep->end - first);

	/* What is located is not read in the order of the file. */
	DepthBegin(&sweep->depth, first, sweep->end,
			   !sweep->locate && LookaheadReadsAreAsync() &&
			   (io_direct_flags & IO_DIRECT_DATA) == 0,
			   sweep->skip != NULL);
}

/* Take the first block of a range, unless the rate has to be kept first. */
static void
sweep_take_first(Sweep *sweep)
{
	if (ReadRateAllows(sweep->throttled))
		sweep_take_upcoming(sweep);
	else
		sweep->dropped = true;
}

void
SweepBegin(Sweep *sweep)
{
	sweep->mcxt = CurrentMemoryContext;
	sweep->current = InvalidBlockNumber;
	sweep->throttled = progress_activity.throttled;
	ReadRateBegin();
	if (!sweep->maintenance)
		sweep->strategy = GetAccessStrategy(BAS_BULKREAD);
	sweep_set_range(sweep, sweep->first, sweep->end);

	sweep->context.callback = sweep_error_context;
	sweep->context.arg = sweep;
	sweep->context.previous = error_context_stack;
	error_context_stack = &sweep->context;

	sweep_begin_stream(sweep);
	sweep_take_first(sweep);
}

/* Raise an error unless the whole range has been handed out. */
static void
sweep_check_exhausted(Sweep *sweep)
{
	sweep->current = InvalidBlockNumber;

	if (BufferIsValid(sweep->upcoming) || sweep->dropped ||
		BufferIsValid(read_stream_next_buffer(sweep->stream, NULL)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("a sweep of relation \"%s\" was ended before its last block",
						RelationGetRelationName(sweep->rel))));
}

void
SweepRestart(Sweep *sweep, BlockNumber first, BlockNumber end)
{
	bool		was_deep = sweep->depth.deep;

	sweep_check_exhausted(sweep);
	sweep_set_range(sweep, first, end);
	sweep_continue_stream(sweep, was_deep);
	sweep_take_first(sweep);
}

void
SweepForgetAhead(Sweep *sweep)
{
	Assert(sweep->skip == NULL);
	if (!BufferIsValid(sweep->upcoming))
		return;

	/* the stream asks for blocks again only when one is taken from it */
	ReleaseBuffer(sweep->upcoming);
	sweep->upcoming = InvalidBuffer;
	sweep->nreturned--;
	sweep->expected--;
	sweep->ahead = sweep->expected;
	read_stream_reset(sweep->stream);
	sweep->dropped = true;
}

Buffer
SweepNext(Sweep *sweep)
{
	Buffer		buffer;

	sweep->current = InvalidBlockNumber;
	CHECK_FOR_INTERRUPTS();

	if (unlikely(sweep->dropped))
	{
		sweep->dropped = false;
		if (!ReadRateAllows(sweep->throttled))
			ReadRateWait();
		sweep_take_upcoming(sweep);
	}
	else
		ReadRateFollow(sweep->throttled);
	buffer = sweep->upcoming;
	if (likely(BufferIsValid(buffer)))
	{
		BlockNumber block = sweep->upcoming_block;

		sweep_take_upcoming(sweep);
		sweep->current = block;
	}
	if (sweep->expected > sweep->told)
	{
		ProgressAdd(sweep->expected - sweep->told);
		sweep->told = sweep->expected;
	}
	return buffer;
}

void
SweepEnd(Sweep *sweep)
{
	sweep_check_exhausted(sweep);
	read_stream_end(sweep->stream);
	if (!sweep->maintenance)
		FreeAccessStrategy(sweep->strategy);

	Assert(error_context_stack == &sweep->context);
	error_context_stack = sweep->context.previous;
}
