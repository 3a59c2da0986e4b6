/*-------------------------------------------------------------------------
 *
 * maintain.h
 *		Index maintenance through streams: the room's face.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_MAINTAIN_H
#define PG_LOOKAHEAD_MAINTAIN_H

/* Settings: pg_lookahead.index_vacuum, and pg_lookahead.bloom_scan */
extern bool lookahead_index_vacuum;
extern bool lookahead_bloom_scan;

/*
 * Is the VACUUM that runs to say what it read ahead?  A setting that nobody
 * sees, since settings are what a parallel worker gets from its leader.
 */
extern bool lookahead_report_vacuum;
#define REPORT_VACUUM_SETTING "pg_lookahead.report_vacuum"

/* Install the hooks.  Called once per process, when the library is loaded. */
extern void MaintainInit(void);

/* Called by MaintainInit(): serve searches of Bloom indexes. */
extern void BloomHooksInit(void);

#endif							/* PG_LOOKAHEAD_MAINTAIN_H */
