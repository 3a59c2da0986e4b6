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
 * A row is made column by column, from the left:
 *
 *		ResultRow	row = {0};
 *
 *		ResultInt64(&row, pages);
 *		ResultText(&row, name);
 *		return ResultReturn(fcinfo, &row);
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_SQL_RESULT_H
#define PG_LOOKAHEAD_SQL_RESULT_H

#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "nodes/execnodes.h"
#include "utils/builtins.h"

/* The most columns of a row. */
#define RESULT_COLUMNS 20

typedef struct ResultRow
{
	int			ncolumns;
	Oid			types[RESULT_COLUMNS];
	Datum		values[RESULT_COLUMNS];
	bool		nulls[RESULT_COLUMNS];
} ResultRow;

/* Add a column. */
static inline void
ResultDatum(ResultRow *row, Oid type, Datum value, bool isnull)
{
	Assert(row->ncolumns < RESULT_COLUMNS);
	row->types[row->ncolumns] = type;
	row->values[row->ncolumns] = value;
	row->nulls[row->ncolumns++] = isnull;
}

static inline void
ResultInt32(ResultRow *row, int32 value)
{
	ResultDatum(row, INT4OID, Int32GetDatum(value), false);
}

static inline void
ResultInt64(ResultRow *row, int64 value)
{
	ResultDatum(row, INT8OID, Int64GetDatum(value), false);
}

static inline void
ResultFloat8(ResultRow *row, double value)
{
	ResultDatum(row, FLOAT8OID, Float8GetDatum(value), false);
}

/* NULL becomes a null. */
static inline void
ResultText(ResultRow *row, const char *value)
{
	ResultDatum(row, TEXTOID, value ? CStringGetTextDatum(value) : (Datum) 0,
				value == NULL);
}

/* The result of the calling SQL function, which returns one row. */
extern Datum ResultReturn(FunctionCallInfo fcinfo, const ResultRow *row);

/*
 * Prepare the tuplestore for the rows of the calling SQL function, which
 * returns a set, of columns of these types.
 */
extern ReturnSetInfo *ResultSet(FunctionCallInfo fcinfo, int ncolumns,
								const Oid *types);

/* Add a row to the set. */
extern void ResultPut(ReturnSetInfo *set, const ResultRow *row);

#endif							/* PG_LOOKAHEAD_SQL_RESULT_H */
