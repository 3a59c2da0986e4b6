/*-------------------------------------------------------------------------
 *
 * version.c
 *		Which version of the library this is, and which servers it may run in.
 *
 * The server itself refuses a library that was built for another major version.
 * Within a major version PostgreSQL keeps the layout of what extensions use, so
 * that packages are not built anew for each minor version; but only forwards: a
 * library built with newer headers may use what an older server does not have.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "utils/builtins.h"
#include "version.h"

void
VersionCheckServer(void)
{
	const char *server = GetConfigOption("server_version_num", false, false);

	if (pg_strtoint32(server) < LOOKAHEAD_BUILT_FOR)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("pg_lookahead %s was built for PostgreSQL %d.%d or later, and this server is %s",
						LOOKAHEAD_VERSION, LOOKAHEAD_BUILT_FOR / 10000,
						LOOKAHEAD_BUILT_FOR % 10000,
						GetConfigOption("server_version", false, false)),
				 errhint("Install the server's newest minor version, or a build of pg_lookahead for this one.")));
}

PG_FUNCTION_INFO_V1(lookahead_version);

Datum
lookahead_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(LOOKAHEAD_VERSION));
}
