/*-------------------------------------------------------------------------
 *
 * methods.h
 *		The access methods that can be attached to, and their handlers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_METHODS_H
#define PG_LOOKAHEAD_METHODS_H

#include "observe/stream_stats.h"

/* contrib/bloom's handler: its name in C, and its library */
#define BLOOM_SYMBOL	"blhandler"
#define BLOOM_LIBRARY	"bloom"

/* What can be attached to. */
typedef struct Method
{
	const char *name;			/* of the access method */
	const char *handler;		/* SQL name of our handler */
	const char *symbol;			/* its name in C */
	Oid			stock;			/* handler of a built-in access method */
	const char *members;		/* what is streamed: a text[] */
	StreamUser	user;
} Method;

#define NMETHODS 3

extern const Method methods[NMETHODS];

/* The method of a name, or NULL. */
extern const Method *MethodByName(const char *name);

/* Is a function of pg_proc the handler of ours, or the stock one? */
extern bool MethodIsOurs(const Method *method, Oid handler);
extern bool MethodIsStock(const Method *method, Oid handler);

/* Our handler, in the schema of the extension; InvalidOid if there is none. */
extern Oid MethodFindOurs(const Method *method, Oid schema);

/*
 * The stock handler of a method's access method, whose handler may be ours at
 * the moment.  InvalidOid if there is none.
 *		am		OID of the access method
 */
extern Oid MethodFindStock(const Method *method, Oid am);

#endif							/* PG_LOOKAHEAD_METHODS_H */
