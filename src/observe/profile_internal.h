/*-------------------------------------------------------------------------
 *
 * profile_internal.h
 *		What the files of the function profile share among themselves.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_PROFILE_INTERNAL_H
#define PG_LOOKAHEAD_PROFILE_INTERNAL_H

#include "lib/stringinfo.h"
#include "nodes/pg_list.h"
#include "observe/profile.h"

/* profile.c: measure what a call costs more; nothing may be entered. */
extern void ProfileMeasureOverhead(void);

/* profile_query.c: install the executor's hooks; called once per process. */
extern void ProfileQueryInstall(void);

/*
 * profile_process.c: functions are to be tracked, for the first time perhaps;
 * install what that takes.  May raise an error.
 */
extern void ProfileInstall(void);

/*
 * profile_index.c: profile the access methods of indexes (Relation), until all
 * are as before but the first so many that are profiled now.
 */
extern void ProfileIndexInstall(List *indexes);
extern int	ProfileIndexesInstalled(void);
extern void ProfileIndexUninstall(int remaining);

/*
 * profile_process.c: this process is to leave a record, and adds to the
 * totals.  May raise an error.
 */
extern void ProfileBeginProcess(void);

/* Add to the process's counters of buffers. */
extern void ProfileCountUsage(const BufferUsage *used);

/* profile_stats.c: attach to the totals, which may raise an error. */
extern void ProfileStatsAttach(void);

/* Add to the totals what this process has measured since.  Cannot fail. */
extern void ProfileStatsFlush(void);

/*
 * One process has failed to leave a record, or has not: true if it is the
 * first since one succeeded, and so should say why.
 */
extern bool ProfileStatsNoteFailure(bool failed);

/*
 * profile_record.c: describe this process in JSON, at its exit.
 *
 * database: its name, or ""; used: its counters of buffers
 */
extern void ProfileRecordFormat(StringInfo json, const char *database,
								const BufferUsage *used);

/*
 * profile_file.c: where records are kept.
 *
 * ProfileFileWrite() puts one there.  Returns NULL, or why it could not, in
 * memory of the current context; never raises an error for what it finds on
 * disk.
 * ProfileFileDirectory() is the path of this server's part of
 * pg_lookahead.profile_directory, NULL if that is empty.
 */
extern char *ProfileFileWrite(StringInfo json);
extern char *ProfileFileDirectory(void);

#endif							/* PG_LOOKAHEAD_PROFILE_INTERNAL_H */
