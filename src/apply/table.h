/*-------------------------------------------------------------------------
 *
 * table.h
 *		The subscriber's tables, and the look-ups of changes of their rows.
 *
 * The server looks for the old row of an UPDATE or a DELETE by the identity
 * index, and makes entries in all indexes for the new row of an INSERT, or of
 * an UPDATE that is not HOT.  A table has a ring of rows for either, which
 * write/ looks up.
 *
 * What is called in a round, which is a subtransaction, may raise errors; all
 * else raises none but for lack of memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_APPLY_TABLE_H
#define PG_LOOKAHEAD_APPLY_TABLE_H

#include "observe/apply_totals.h"

/* Bytes before what the publisher tells: the kind, two positions, the time. */
#define APPLY_HEADER 25

typedef struct ApplyTable ApplyTable;

/* A change of a row that waits for its turn.  All zero at first. */
typedef struct ApplyChange
{
	ApplyTable *table;
	uint32		opening;		/* of the table, when it was looked at */
	char		action;			/* a LogicalRepMsgType */
	bool		by_key;			/* is it in the table's rings? */
	bool		entries;
	bool		arrived;		/* its turn has come, and it counts */
} ApplyChange;

/* The publisher has described a table. */
extern void ApplyTableDescribe(const char *message, int length,
							   bool in_stream);

/* Forget all tables but what the publisher says of them. */
extern void ApplyTablesReset(void);

/*
 * In a round: a change is added, unless that was done, in the order in which
 * they come; and reads are started for all that have been added.
 */
extern void ApplyChangeAdd(ApplyChange *change, const char *message,
						   int length);
extern void ApplyTablesRead(void);

/* A round has ended, and has been rolled back: tell what was read. */
extern void ApplyTablesEnd(ApplyCounters *counters);

/* The turn of a change has come; and it is over. */
extern void ApplyChangeArrive(ApplyChange *change);
extern void ApplyChangePass(ApplyChange *change);

#endif							/* PG_LOOKAHEAD_APPLY_TABLE_H */
