/*-------------------------------------------------------------------------
 *
 * toast.h
 *		TOASTed values of coming rows, read ahead.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_TOAST_H
#define PG_LOOKAHEAD_TOAST_H

/* The setting pg_lookahead.toast; owned by pg_lookahead.c. */
extern bool lookahead_toast;

/* Serve scans from now on; called once, when the library is loaded. */
extern void ToastInit(void);

#endif							/* PG_LOOKAHEAD_TOAST_H */
