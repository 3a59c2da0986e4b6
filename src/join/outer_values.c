/*-------------------------------------------------------------------------
 *
 * outer_values.c
 *		The values of an outer row that are parameters of the plans that are
 *		executed for it; see inner_side.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "early/heap_row.h"
#include "executor/executor.h"
#include "join/inner_side.h"
#include "nodes/nodeFuncs.h"
#include "utils/lsyscache.h"

/* Add a value: a column, or what is computed of the row. */
static void
outer_values_add(OuterValues *values, AttrNumber *columns, int paramno,
				 Expr *expression)
{
	OuterValue *value = &values->values[values->n];
	const Var  *var = (const Var *) expression;

	value->paramno = paramno;
	if (IsA(var, Var) && var->varattno > 0)
		columns[values->n] = var->varattno;
	else
		value->expression = ExecInitExpr(expression, NULL);
	values->n++;
	get_typlenbyval(exprType((Node *) expression), &value->typlen,
					&value->typbyval);
}

OuterValues *
OuterValuesCreate(PlanState *node, const RowPlans *plans,
				  ExprContext *econtext)
{
	OuterValues *values;
	AttrNumber *columns;
	ListCell   *lc;
	ListCell   *lc2;
	int			n = 0;

	for (int i = 0; i < plans->n; i++)
		n += list_length(plans->plans[i].subplan != NULL ?
						 plans->plans[i].subplan->parParam :
						 ((NestLoop *) node->plan)->nestParams);
	values = palloc0(offsetof(OuterValues, values) + n * sizeof(OuterValue));
	columns = palloc0_array(AttrNumber, n);
	values->columns = columns;
	values->params = node->state->es_param_exec_vals;
	values->econtext = econtext;
	for (int i = 0; i < plans->n; i++)
	{
		const SubPlan *subplan = plans->plans[i].subplan;

		if (subplan != NULL)
			forboth(lc, subplan->parParam, lc2, subplan->args)
				outer_values_add(values, columns, lfirst_int(lc), lfirst(lc2));
		else
			foreach(lc, ((NestLoop *) node->plan)->nestParams)
			{
				NestLoopParam *param = lfirst_node(NestLoopParam, lc);

				outer_values_add(values, columns, param->paramno,
								 (Expr *) param->paramval);
			}
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
OuterValuesSuffice(const OuterValues *values, const Bitmapset *outside,
				   List **params)
{
	ListCell   *lc;

	(void) OuterValuesRemove(values, params);
	foreach(lc, *params)
		if (!bms_is_member(lfirst_int(lc), outside))
			return false;
	return true;
}

void
OuterValuesSet(OuterValues *values, TupleTableSlot *slot)
{
	values->econtext->ecxt_outertuple = slot;
	values->econtext->ecxt_scantuple = slot;
	for (int i = 0; i < values->n; i++)
	{
		OuterValue *value = &values->values[i];
		ParamExecData *param = &values->params[value->paramno];

		value->saved = *param;
		param->execPlan = NULL;
		param->value = value->expression == NULL ?
			slot_getattr(slot, values->columns[i], &param->isnull) :
			ExecEvalExpr(value->expression, values->econtext, &param->isnull);
	}
}

void
OuterValuesRestore(OuterValues *values)
{
	for (int i = values->n - 1; i >= 0; i--)
		values->params[values->values[i].paramno] = values->values[i].saved;
}

bool
OuterValuesAreToasted(const OuterValues *values)
{
	for (int i = 0; i < values->n; i++)
	{
		const ParamExecData *param = OuterValueNow(values, i);

		if (values->values[i].typlen == -1 && !param->isnull &&
			HeapValueIsToasted(DatumGetPointer(param->value)))
			return true;
	}
	return false;
}
