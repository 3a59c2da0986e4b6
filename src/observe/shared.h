/*-------------------------------------------------------------------------
 *
 * shared.h
 *		Memory for statistics that all processes share.
 *
 * A user of this file has one static SharedSegment for what it counts, fills
 * in the first three members, and asks for the memory each time it needs it:
 *
 *		static SharedSegment segment = {"index scans", sizeof(Totals), init};
 *
 *		SharedSegmentRegister(&segment);		from _PG_init()
 *		totals = SharedSegmentGet(&segment);
 *		if (totals != NULL) ...
 *
 * Nothing here raises an error.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_SHARED_H
#define PG_LOOKAHEAD_SHARED_H

#include "access/xact.h"

typedef struct SharedSegment
{
	const char *name;			/* what is counted, in at most 20 characters */
	Size		size;			/* bytes; a few hundred at most */
	void		(*init) (void *memory); /* called once; must raise no error */

	/* of shared.c */
	void	   *memory;			/* NULL: not attached to */
	bool		failed;			/* this process cannot attach to it */
	struct SharedSegment *next;
} SharedSegment;

/*
 * Reserve the memory when the server starts, if the library is loaded then.
 * To be called from _PG_init(); otherwise harmless and without effect.
 */
extern void SharedSegmentRegister(SharedSegment *segment);

/*
 * The memory, or NULL if it cannot be had.  The first failure in a session
 * raises a WARNING; from then on the answer is always NULL.  While the caller
 * holds an LWLock (that of a buffer, for instance), no attempt is made.
 */
extern void *SharedSegmentGet(SharedSegment *segment);

/*
 * Does an event end a transaction, whichever way?  What a process keeps of its
 * own until then is given up or made visible at such events.
 */
static inline bool
XactIsEnding(XactEvent event)
{
	return event == XACT_EVENT_COMMIT || event == XACT_EVENT_PARALLEL_COMMIT ||
		event == XACT_EVENT_ABORT || event == XACT_EVENT_PARALLEL_ABORT ||
		event == XACT_EVENT_PREPARE;
}

/*
 * Have a function called at the ends of transactions, from this one on.  What
 * no transaction of a process needs then costs its transactions nothing.
 */
static inline void
XactCallbackOnce(bool *registered, XactCallback callback)
{
	if (!*registered)
		RegisterXactCallback(callback, NULL);
	*registered = true;
}

#endif							/* PG_LOOKAHEAD_SHARED_H */
