/*-------------------------------------------------------------------------
 *
 * busy_processors.h
 *		Whether this process waits for a processor rather than for storage.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_BUSY_PROCESSORS_H
#define PG_LOOKAHEAD_BUSY_PROCESSORS_H

#include "portability/instr_time.h"

/*
 * A unit of work begins that is done ahead; and has ended, and taken the time
 * "inside".  True if this is the last one of those looked at, and the process
 * could run during these, and got no processor, for a quarter of their time or
 * more.  False where the kernel keeps no such account, as others than Linux do.
 */
extern void ProcessorsBeginUnit(void);
extern bool ProcessorsAreBusy(instr_time inside);

#endif							/* PG_LOOKAHEAD_BUSY_PROCESSORS_H */
