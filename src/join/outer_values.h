/*-------------------------------------------------------------------------
 *
 * outer_values.h
 *		The values of an outer row that are parameters of the plans that are
 *		executed for it (see row_plans.h).
 *
 * A node hands them over as parameters of the executor.  For a row that is
 * ahead these are set for a moment, and set back; nothing may be executed in
 * between but expressions without effects (see harmless.h).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_OUTER_VALUES_H
#define PG_LOOKAHEAD_OUTER_VALUES_H

#include "join/row_plans.h"

/* One value, and its parameter. */
typedef struct OuterValue
{
	int			paramno;
	ExprState  *expression;		/* computes it of the row; NULL: a column */
	int16		typlen;
	bool		typbyval;
	ParamExecData saved;
} OuterValue;

typedef struct OuterValues
{
	ParamExecData *params;		/* es_param_exec_vals of the query */
	const AttrNumber *columns;	/* of rows that are set: one for each value */
	ExprContext *econtext;		/* for what is computed of a row */
	int			n;
	OuterValue	values[FLEXIBLE_ARRAY_MEMBER];
} OuterValues;

extern OuterValues *OuterValuesCreate(PlanState *node, const RowPlans *plans,
									  ExprContext *econtext);

/*
 * Remove the values' parameters from a list.  Return false if the list has none
 * of them.
 */
extern bool OuterValuesRemove(const OuterValues *values, List **params);

/*
 * Have all parameters in a list been computed?  To look at one that has not
 * been would compute it.
 */
extern bool OuterValuesKnow(const OuterValues *values, const List *params);

/*
 * Set the parameters to the values of a row; set them back.  Called in the
 * per-tuple memory of econtext, or in memory that lives no longer than they do.
 */
extern void OuterValuesSet(OuterValues *values, TupleTableSlot *slot);
extern void OuterValuesRestore(OuterValues *values);

/* The present state of a parameter. */
static inline const ParamExecData *
OuterValueNow(const OuterValues *values, int i)
{
	return &values->params[values->values[i].paramno];
}

/* Does one of them lie in a TOAST table, which is not to be read ahead? */
extern bool OuterValuesAreToasted(const OuterValues *values);

#endif							/* PG_LOOKAHEAD_OUTER_VALUES_H */
