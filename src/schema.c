/*-------------------------------------------------------------------------
 *
 * schema.c
 *		Whose schema "lookahead" may be when the extension is created in it.
 *
 * CREATE EXTENSION takes a schema as it finds it.  Whoever owns it could add
 * functions there at any time, to which calls of the extension's functions
 * would then be resolved, with the rights of the caller.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_namespace.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/syscache.h"

#define SCHEMA "lookahead"

PG_FUNCTION_INFO_V1(lookahead_check_schema);

/*
 * lookahead.check_schema() returns void
 *
 * Raises an error unless the schema belongs to a superuser or to the current
 * user, who is the extension's owner.  Only the extension's script has it.
 */
Datum
lookahead_check_schema(PG_FUNCTION_ARGS)
{
	HeapTuple	tuple =
		SearchSysCache1(NAMESPACEOID,
						ObjectIdGetDatum(get_namespace_oid(SCHEMA, false)));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for schema \"%s\"", SCHEMA);
	owner = ((Form_pg_namespace) GETSTRUCT(tuple))->nspowner;
	ReleaseSysCache(tuple);
	if (owner != GetUserId() && !superuser_arg(owner))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("schema \"%s\" belongs to role \"%s\", which is no superuser",
						SCHEMA, GetUserNameFromId(owner, false)),
				 errhint("Drop the schema, or see what it has and make a superuser its owner.")));
	PG_RETURN_VOID();
}
