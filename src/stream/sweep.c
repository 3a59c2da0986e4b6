/*-------------------------------------------------------------------------
 *
 * sweep.c
 *		Reading a range of blocks of one relation fork, in order and ahead.
 *
 * The stream is told that everything will be read (READ_STREAM_FULL), so it
 * combines blocks into large reads from the start, and it reads into a
 * bulk-read ring, so a sweep over a large relation does not empty shared
 * buffers.  When all blocks turn out to be cached, read_stream falls back to
 * pinning one block at a time, which costs no more than ReadBuffer.
 *
 * Batch mode lets several reads be handed to the kernel in one call, but
 * forbids the callback to wait for anything.  Counting up a range waits for
 * nothing; a skip callback reads visibility and free space maps, so there is
 * no batch mode with one.
 *
 * What the stream hands back is checked against what it was asked for.  The
 * checks are comparisons of integers, so they are no mere assertions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "stream/sweep.h"
#include "utils/rel.h"

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

/* The stream's question "which block next?", for a sweep that reads all. */
static BlockNumber
sweep_next_block(ReadStream *stream, void *callback_private_data,
				 void *per_buffer_data)
{
	Sweep	   *sweep = (Sweep *) callback_private_data;

	if (sweep->ahead >= sweep->end)
		return InvalidBlockNumber;
	return sweep->ahead++;
}

/*
 * The same for a sweep that skips.  A long run of skipped blocks is passed
 * over in one call, so interrupts are checked here too.
 */
static BlockNumber
sweep_next_unskipped_block(ReadStream *stream, void *callback_private_data,
						   void *per_buffer_data)
{
	Sweep	   *sweep = (Sweep *) callback_private_data;

	while (sweep->ahead < sweep->end)
	{
		BlockNumber block = sweep->ahead++;

		CHECK_FOR_INTERRUPTS();
		if (!sweep->skip(block, sweep->skip_arg))
			return block;
		sweep->skipped++;
	}
	return InvalidBlockNumber;
}

void
SweepBegin(Sweep *sweep, Relation rel, ForkNumber fork,
		   BlockNumber first, BlockNumber end,
		   SweepSkip skip, void *skip_arg)
{
	int			flags = READ_STREAM_FULL;

	memset(sweep, 0, sizeof(*sweep));
	sweep->rel = rel;
	sweep->skip = skip;
	sweep->skip_arg = skip_arg;
	sweep->first = first;
	sweep->end = Max(first, end);
	sweep->ahead = first;
	sweep->current = InvalidBlockNumber;
	sweep->previous = InvalidBlockNumber;

	sweep->context.callback = sweep_error_context;
	sweep->context.arg = sweep;
	sweep->context.previous = error_context_stack;
	error_context_stack = &sweep->context;

	if (skip == NULL)
		flags |= READ_STREAM_USE_BATCHING;
	sweep->strategy = GetAccessStrategy(BAS_BULKREAD);
	sweep->stream = read_stream_begin_relation(flags, sweep->strategy, rel,
											   fork,
											   skip ? sweep_next_unskipped_block
											   : sweep_next_block,
											   sweep, 0);
}

/*
 * The stream has no more: were all blocks of the range accounted for?
 */
static void
sweep_check_complete(Sweep *sweep)
{
	BlockNumber expected = sweep->end - sweep->first;

	if (sweep->ahead != sweep->end ||
		sweep->returned + sweep->skipped != expected)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("reading ahead in relation \"%s\" ended early, before block %u",
						RelationGetRelationName(sweep->rel),
						BlockNumberIsValid(sweep->previous) ?
						sweep->previous + 1 : sweep->first),
				 errdetail("Of %u blocks, %u were read and %u skipped.",
						   expected, sweep->returned, sweep->skipped)));
}

Buffer
SweepNext(Sweep *sweep)
{
	Buffer		buffer;
	BlockNumber block;

	sweep->current = InvalidBlockNumber;
	CHECK_FOR_INTERRUPTS();

	buffer = read_stream_next_buffer(sweep->stream, NULL);
	if (unlikely(!BufferIsValid(buffer)))
	{
		sweep_check_complete(sweep);
		return InvalidBuffer;
	}

	/*
	 * Without a skip callback the block must be the one after the last;
	 * otherwise some later one.
	 */
	block = BufferGetBlockNumber(buffer);
	if (sweep->skip == NULL ?
		unlikely(block != sweep->first + sweep->returned) :
		unlikely(block >= sweep->end || block < sweep->first ||
				 (BlockNumberIsValid(sweep->previous) &&
				  block <= sweep->previous)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("reading ahead in relation \"%s\" gave block %u out of order",
						RelationGetRelationName(sweep->rel), block)));

	sweep->returned++;
	sweep->previous = block;
	sweep->current = block;
	return buffer;
}

void
SweepEnd(Sweep *sweep)
{
	sweep->current = InvalidBlockNumber;

	if (BufferIsValid(read_stream_next_buffer(sweep->stream, NULL)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("reading ahead in relation \"%s\" went on beyond block %u",
						RelationGetRelationName(sweep->rel), sweep->end)));
	sweep_check_complete(sweep);

	read_stream_end(sweep->stream);
	FreeAccessStrategy(sweep->strategy);

	Assert(error_context_stack == &sweep->context);
	error_context_stack = sweep->context.previous;
}

BlockNumber
SweepReturned(const Sweep *sweep)
{
	return sweep->returned;
}
