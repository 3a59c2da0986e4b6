/*-------------------------------------------------------------------------
 *
 * enabled.h
 *		The setting pg_lookahead.enabled, which every other setting obeys; and
 *		how hooks are installed, whose functions ask for it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_ENABLED_H
#define PG_LOOKAHEAD_ENABLED_H

/*
 * May anything of what the server does be done in another way?  Owned by
 * pg_lookahead.c.  Functions of the schema lookahead do not ask for it.
 */
extern bool lookahead_enabled;

/*
 * Install a function in a hook that has a standard function.  It is to call
 * prev_name, which is that one, or another extension's.
 */
#define INSTALL_HOOK(name, function) \
	(prev_##name = name##_hook ? name##_hook : standard_##name, \
	 name##_hook = (function))

#endif							/* PG_LOOKAHEAD_ENABLED_H */
