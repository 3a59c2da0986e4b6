/*-------------------------------------------------------------------------
 *
 * outer_values.c
 *		The values of an outer row that are parameters of the inner side; see
 *		outer_values.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "executor/executor.h"
#include "join/outer_values.h"
#include "utils/lsyscache.h"
#include "varatt.h"

OuterValues *
OuterValuesCreate(NestLoopState *join)
{
	List	   *params = ((NestLoop *) join->js.ps.plan)->nestParams;
	OuterValues *values = palloc0(offsetof(OuterValues, values) +
								  list_length(params) * sizeof(OuterValue));
	AttrNumber *columns = palloc_array(AttrNumber, list_length(params));
	ListCell   *lc;

	values->columns = columns;
	values->params = join->js.ps.state->es_param_exec_vals;
	foreach(lc, params)
	{
		NestLoopParam *param = lfirst_node(NestLoopParam, lc);
		OuterValue *value = &values->values[values->n];

		columns[values->n++] = param->paramval->varattno;
		value->paramno = param->paramno;
		get_typlenbyval(param->paramval->vartype, &value->typlen,
						&value->typbyval);
	}
	return values;
}

bool
OuterValuesRemove(const OuterValues *values, List **params)
{
	bool		any = false;

	for (int i = 0; i < values->n; i++)
	{
		int			paramno = values->values[i].paramno;

		any |= list_member_int(*params, paramno);
		*params = list_delete_int(*params, paramno);
	}
	return any;
}

bool
OuterValuesKnow(const OuterValues *values, const List *params)
{
	ListCell   *lc;

	foreach(lc, params)
		if (values->params[lfirst_int(lc)].execPlan != NULL)
			return false;
	return true;
}

void
OuterValuesSet(OuterValues *values, TupleTableSlot *slot)
{
	for (int i = 0; i < values->n; i++)
	{
		OuterValue *value = &values->values[i];
		ParamExecData *param = &values->params[value->paramno];

		value->saved = *param;
		param->execPlan = NULL;
		param->value = slot_getattr(slot, values->columns[i], &param->isnull);
	}
}

void
OuterValuesRestore(OuterValues *values)
{
	for (int i = 0; i < values->n; i++)
		values->params[values->values[i].paramno] = values->values[i].saved;
}

bool
OuterValuesAreToasted(const OuterValues *values)
{
	for (int i = 0; i < values->n; i++)
	{
		const ParamExecData *param = OuterValueNow(values, i);

		if (values->values[i].typlen == -1 && !param->isnull &&
			VARATT_IS_EXTERNAL(DatumGetPointer(param->value)))
			return true;
	}
	return false;
}
