/*-------------------------------------------------------------------------
 *
 * sql_result.c
 *		What SQL functions that return rows have in common.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "sql_result.h"
#include "utils/regproc.h"
#include "utils/tuplestore.h"

/*
 * Refuse a function that is declared to return something else than the
 * library gives; otherwise return the declared row.
 */
static TupleDesc
result_check_columns(FunctionCallInfo fcinfo, int ncolumns, const Oid *types)
{
	TupleDesc	declared;
	int			natts = 1;
	int			i = 0;

	Assert(ncolumns > 1);
	if (get_call_result_type(fcinfo, NULL, &declared) == TYPEFUNC_COMPOSITE)
	{
		natts = declared->natts;
		while (i < Min(natts, ncolumns) &&
			   TupleDescAttr(declared, i)->atttypid == types[i])
			i++;
		if (i == natts && i == ncolumns)
			return declared;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
			 errmsg("function %s and the library of pg_lookahead are of different versions",
					format_procedure(fcinfo->flinfo->fn_oid)),
			 natts == ncolumns ?
				 errdetail("Result column %d is declared as %s, and the library, which is version %s, gives %s.",
						   i + 1,
						   format_type_be(TupleDescAttr(declared, i)->atttypid),
						   LOOKAHEAD_VERSION, format_type_be(types[i])) :
				 errdetail("The function is declared with %d result columns, and the library, which is version %s, gives %d.",
						   natts, LOOKAHEAD_VERSION, ncolumns),
			 errhint("Run ALTER EXTENSION pg_lookahead UPDATE.  If that changes nothing, the library is older: start a new session, or restart the server if the library is in \"shared_preload_libraries\".")));
}

Datum
ResultReturn(FunctionCallInfo fcinfo, const ResultRow *row)
{
	TupleDesc	tupdesc =
		result_check_columns(fcinfo, row->ncolumns, row->types);

	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
											 row->values, row->nulls));
}

ReturnSetInfo *
ResultSet(FunctionCallInfo fcinfo, int ncolumns, const Oid *types)
{
	(void) result_check_columns(fcinfo, ncolumns, types);
	InitMaterializedSRF(fcinfo, 0);
	return (ReturnSetInfo *) fcinfo->resultinfo;
}

void
ResultPut(ReturnSetInfo *set, const ResultRow *row)
{
	Assert(row->ncolumns == set->setDesc->natts);
	tuplestore_putvalues(set->setResult, set->setDesc, row->values,
						 row->nulls);
}
