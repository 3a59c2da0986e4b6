/*-------------------------------------------------------------------------
 *
 * methods.c
 *		The access methods that can be attached to, and their handlers; see
 *		methods.h.
 *
 * Our handlers run while a relation cache entry is built, so they look at no
 * catalog: hash's and GIN's stock handlers are functions of the server, and
 * contrib/bloom's is looked up in its library.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/gin.h"
#include "access/hash.h"
#include "access/htup_details.h"
#include "am_handler.h"
#include "catalog/dependency.h"
#include "catalog/pg_am.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type_d.h"
#include "compat.h"
#include "fmgr.h"
#include "maintain/maintain.h"
#include "maintain/methods.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/fmgroids.h"
#include "utils/syscache.h"

#define OUR_LIBRARY "pg_lookahead"

const Method methods[NMETHODS] = {
	{"hash", "hash_handler", "lookahead_hash_handler", F_HASHHANDLER,
	"{ambulkdelete}", STREAM_USER_HASH},
	{"gin", "gin_handler", "lookahead_gin_handler", F_GINHANDLER,
	"{amvacuumcleanup}", STREAM_USER_GIN},
	{"bloom", "bloom_handler", "lookahead_bloom_handler", InvalidOid,
	"{amgetbitmap,ambulkdelete,amvacuumcleanup}", STREAM_USER_BLOOM},
};

PG_FUNCTION_INFO_V1(lookahead_hash_handler);
PG_FUNCTION_INFO_V1(lookahead_gin_handler);
PG_FUNCTION_INFO_V1(lookahead_bloom_handler);

/*
 * The handlers.  Before 19 a handler returns memory of its caller's, which is
 * thus ours to change; a server that streams itself gets the stock routine.
 */
static Datum
overlaid(Datum stock, void (*overlay) (IndexAmRoutine *routine))
{
	if (!LOOKAHEAD_SERVER_STREAMS_INDEXES)
		overlay((IndexAmRoutine *) DatumGetPointer(stock));
	return stock;
}

Datum
lookahead_hash_handler(PG_FUNCTION_ARGS)
{
	return overlaid(hashhandler(fcinfo), hash_overlay);
}

Datum
lookahead_gin_handler(PG_FUNCTION_ARGS)
{
	return overlaid(ginhandler(fcinfo), gin_overlay);
}

Datum
lookahead_bloom_handler(PG_FUNCTION_ARGS)
{
	PGFunction	stock = (PGFunction)
		load_external_function("$libdir/" BLOOM_LIBRARY, BLOOM_SYMBOL, true,
							   NULL);

	return overlaid(stock(fcinfo), bloom_overlay);
}

const Method *
MethodByName(const char *name)
{
	for (size_t i = 0; i < NMETHODS; i++)
		if (strcmp(methods[i].name, name) == 0)
			return &methods[i];
	return NULL;
}

bool
MethodIsOurs(const Method *method, Oid handler)
{
	return AmHandlerIs(handler, method->symbol, OUR_LIBRARY);
}

bool
MethodIsStock(const Method *method, Oid handler)
{
	if (OidIsValid(method->stock))
		return handler == method->stock;
	return AmHandlerIs(handler, BLOOM_SYMBOL, BLOOM_LIBRARY);
}

Oid
MethodFindOurs(const Method *method, Oid schema)
{
	Oid			argument = INTERNALOID;
	oidvector  *arguments = buildoidvector(&argument, 1);
	Oid			handler;

	handler = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
							  CStringGetDatum(method->handler),
							  PointerGetDatum(arguments),
							  ObjectIdGetDatum(schema));
	return MethodIsOurs(method, handler) ? handler : InvalidOid;
}

/* contrib/bloom's comes with the same extension as the access method. */
Oid
MethodFindStock(const Method *method, Oid am)
{
	Oid			extension;
	CatCList   *list;
	Oid			stock = InvalidOid;

	if (OidIsValid(method->stock))
		return method->stock;

	extension = getExtensionOfObject(AccessMethodRelationId, am);
	list = SearchSysCacheList1(PROCNAMEARGSNSP, CStringGetDatum(BLOOM_SYMBOL));
	for (int i = 0; i < list->n_members; i++)
	{
		HeapTuple	tuple = &list->members[i]->tuple;
		Oid			candidate = ((Form_pg_proc) GETSTRUCT(tuple))->oid;

		if (MethodIsStock(method, candidate) &&
			getExtensionOfObject(ProcedureRelationId, candidate) == extension)
			stock = candidate;
	}
	ReleaseSysCacheList(list);
	return stock;
}
