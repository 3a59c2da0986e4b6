/*-------------------------------------------------------------------------
 *
 * builtin.h
 *		Which objects are the server's own.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_BUILTIN_H
#define PG_LOOKAHEAD_BUILTIN_H

#include "access/transam.h"

/*
 * Is this the server's own: a function, type, operator, operator family or
 * access method that initdb made and pinned?  What such an object does is
 * known, and it cannot be dropped.  FirstNormalObjectId is not the limit: the
 * OIDs between the two belong to objects that anybody made in single-user mode.
 * InvalidOid passes, too.
 */
#define IsBuiltin(oid) ((oid) < FirstUnpinnedObjectId)

#endif							/* PG_LOOKAHEAD_BUILTIN_H */
