/*-------------------------------------------------------------------------
 *
 * am_handler.c
 *		Which C function is the handler of an access method?  See
 *		am_handler.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "am_handler.h"
#include "catalog/pg_language_d.h"
#include "catalog/pg_proc.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

/* A text column of a C function's pg_proc row, where it is never null. */
static char *
proc_text(HeapTuple tuple, AttrNumber column)
{
	return TextDatumGetCString(SysCacheGetAttrNotNull(PROCOID, tuple, column));
}

/* Is this the path of a library, with or without its suffix? */
static bool
is_library(const char *path, const char *library)
{
	const char *slash = strrchr(path, '/');
	const char *file = slash == NULL ? path : slash + 1;
	size_t		length = strlen(library);

	return strncmp(file, library, length) == 0 &&
		(file[length] == '\0' || strcmp(file + length, DLSUFFIX) == 0);
}

bool
AmHandlerIs(Oid function, const char *symbol, const char *library)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;

	result = ((Form_pg_proc) GETSTRUCT(tuple))->prolang == ClanguageId &&
		strcmp(proc_text(tuple, Anum_pg_proc_prosrc), symbol) == 0 &&
		is_library(proc_text(tuple, Anum_pg_proc_probin), library);
	ReleaseSysCache(tuple);
	return result;
}
