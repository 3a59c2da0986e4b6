/*-------------------------------------------------------------------------
 *
 * apply.h
 *		Look-ahead of the worker that applies changes of a subscription.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_APPLY_H
#define PG_LOOKAHEAD_APPLY_H

#include "observe/totals.h"
#include "utils/guc.h"

/* The setting pg_lookahead.apply; owned by pg_lookahead.c. */
extern bool lookahead_apply;

/* Its check hook: servers before 18 refuse it. */
extern bool ApplyCheckSetting(bool *newval, void **extra, GucSource source);

/* Install what is needed; from _PG_init(). */
extern void ApplyInit(void);

/*
 * table.c: the subscriber's tables, and the look-ups of changes of their
 * rows.
 *
 * What is called in a round, which is a subtransaction, may raise errors; all
 * else raises none but for lack of memory.
 */

/* Bytes before what the publisher tells: the kind, two positions, the time. */
#define APPLY_HEADER 25

typedef struct ApplyTable ApplyTable;

/* The two rings of rows that a table has. */
typedef enum ApplyRing
{
	BY_KEY,						/* rows that the identity index leads to */
	ENTRIES						/* new rows, for their entries in all indexes */
} ApplyRing;

/* A change of a row that waits for its turn.  All zero at first. */
typedef struct ApplyChange
{
	ApplyTable *table;			/* NULL: nothing is known of the change */
	uint32		opening;		/* of the table, when it was looked at */
	char		action;			/* a LogicalRepMsgType */
	bool		in_ring[2];		/* by ApplyRing */
} ApplyChange;

/* The publisher has described a table. */
extern void ApplyTableDescribe(const char *message, int length,
							   bool in_stream);

/* Forget all tables but what the publisher says of them. */
extern void ApplyTablesForget(void);

/*
 * In a round: a change is added, unless that was done, in the order in which
 * they come.  At its end, reads are started for all that have been added.
 */
extern void ApplyChangeAdd(ApplyChange *change, const char *message,
						   int length);
extern void ApplyTablesRead(ApplyCounters *counters);

/* The turn of a change has come: was it looked up?  And its turn is over. */
extern bool ApplyChangeArrive(ApplyChange *change);
extern void ApplyChangePass(ApplyChange *change);

#endif							/* PG_LOOKAHEAD_APPLY_H */
