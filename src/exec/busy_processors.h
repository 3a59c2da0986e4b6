/*-------------------------------------------------------------------------
 *
 * busy_processors.h
 *		Whether this process waits for a processor rather than for storage.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_BUSY_PROCESSORS_H
#define PG_LOOKAHEAD_BUSY_PROCESSORS_H

/*
 * Called at each unit of work that had to be read, such as a statement.  Of the
 * time between two looks at the kernel's account, BUSY_UNITS such calls apart,
 * has a quarter passed while the process could run, and got no processor?
 * False where the kernel keeps no such account, as others than Linux do.
 */
extern bool ProcessorsAreBusy(void);

#endif							/* PG_LOOKAHEAD_BUSY_PROCESSORS_H */
