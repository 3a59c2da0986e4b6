/*-------------------------------------------------------------------------
 *
 * sql_result.h
 *		What SQL functions that return rows have in common.
 *
 * The library and the SQL of the extension may be of two versions: a package
 * replaces the library at once, ALTER EXTENSION UPDATE comes later, and a
 * library that a server has loaded stays until it is restarted.  So each of
 * these functions compares the columns that it gives with those it is declared
 * to return, by number and type, and raises an error (42P13) if they differ.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_SQL_RESULT_H
#define PG_LOOKAHEAD_SQL_RESULT_H

#include "fmgr.h"
#include "nodes/execnodes.h"

/*
 * The result row of the calling SQL function, which returns one.
 *		ncolumns, types		the columns that the caller gives
 *		values, nulls		of each column; nulls may be NULL if no value is
 */
extern Datum ResultRow(FunctionCallInfo fcinfo, int ncolumns, const Oid *types,
					   const Datum *values, const bool *nulls);

/*
 * Prepare the tuplestore for the rows of the calling SQL function, which
 * returns a set.
 *		ncolumns, types		as above
 *		returns				whose setResult and setDesc the caller uses
 */
extern ReturnSetInfo *ResultSet(FunctionCallInfo fcinfo, int ncolumns,
								const Oid *types);

#endif							/* PG_LOOKAHEAD_SQL_RESULT_H */
