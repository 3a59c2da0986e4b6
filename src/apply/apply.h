/*-------------------------------------------------------------------------
 *
 * apply.h
 *		Look-ahead of the worker that applies changes of a subscription.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_APPLY_H
#define PG_LOOKAHEAD_APPLY_H

#include "utils/guc.h"

/* The setting pg_lookahead.apply; owned by pg_lookahead.c. */
extern bool lookahead_apply;

/* Its check hook: servers before 18 refuse it. */
extern bool ApplyCheckSetting(bool *newval, void **extra, GucSource source);

/* Install what is needed; from _PG_init(). */
extern void ApplyInit(void);

#endif							/* PG_LOOKAHEAD_APPLY_H */
