/*-------------------------------------------------------------------------
 *
 * following.h
 *		TOASTed values of the rows that COPY TO writes.
 *
 * COPY of a table, pg_dump's way to read one, scans it without the executor.
 * It is noticed here, and gets a stand-in for its scan (stand_in.h), which is
 * served as other scans are.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_FOLLOWING_H
#define PG_LOOKAHEAD_FOLLOWING_H

#include "exec/ahead_node.h"

/*
 * Serve COPY with the methods of scans, of the struct ToastScan; called once,
 * when the library is loaded.
 */
extern void FollowingInit(const AheadMethods *scan_methods);

#endif							/* PG_LOOKAHEAD_FOLLOWING_H */
