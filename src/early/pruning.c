/*-------------------------------------------------------------------------
 *
 * pruning.c
 *		The children of an Append node that an outer row selects; see
 *		harmless.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "builtin.h"
#include "compat.h"
#include "early/harmless.h"
#include "executor/execPartition.h"
#include "utils/lsyscache.h"

int
AppendChildren(PlanState *node, PlanState ***children)
{
	switch (nodeTag(node))
	{
		case T_AppendState:
			*children = ((AppendState *) node)->appendplans;
			return ((AppendState *) node)->as_nplans;
		case T_MergeAppendState:
			*children = ((MergeAppendState *) node)->mergeplans;
			return ((MergeAppendState *) node)->ms_nplans;
		default:
			return 0;
	}
}

static PartitionPruneState *
pruning_state(PlanState *append)
{
	return IsA(append, AppendState) ?
		((AppendState *) append)->as_prune_state :
		((MergeAppendState *) append)->ms_prune_state;
}

bool
PruningIsDone(PlanState *append)
{
	PartitionPruneState *state = pruning_state(append);

	return state != NULL && state->do_exec_prune;
}

/* Does a function that compares or hashes values do no more? */
static bool
pruning_is_plain(Oid function)
{
	Oid		   *types;
	int			n;

	if (!IsBuiltin(function))
		return false;
	(void) get_func_signature(function, &types, &n);
	return n > 0 && KeyTypeIsPlain(types[0]);
}

static bool
pruning_step_is_harmless(const PartitionPruneStep *step, const EState *estate,
				 bool settings_stay, bool *infallible, List **params)
{
	const PartitionPruneStepOp *op;
	ListCell   *lc;

	if (!IsA(step, PartitionPruneStepOp))
		return true;
	op = (const PartitionPruneStepOp *) step;
	foreach(lc, op->cmpfns)
		if (!pruning_is_plain(lfirst_oid(lc)))
			return false;
	foreach(lc, op->exprs)
	{
		if (!HarmlessExpression(lfirst(lc), settings_stay, false, params))
			return false;
		if (infallible != NULL)
			*infallible &= IsInfallible(lfirst(lc), estate);
	}
	return true;
}

bool
PruningIsHarmless(PlanState *append, bool settings_stay, bool *infallible,
				  List **params)
{
	const PartitionPruneState *state = pruning_state(append);
	ListCell   *lc;

	if (!PruningIsDone(append))
		return true;
	for (int i = 0; i < state->num_partprunedata; i++)
	{
		const PartitionPruningData *tree = state->partprunedata[i];

		for (int j = 0; j < tree->num_partrelprunedata; j++)
			foreach(lc, tree->partrelprunedata[j].exec_pruning_steps)
				if (!pruning_step_is_harmless(lfirst(lc), append->state,
											  settings_stay, infallible,
											  params))
					return false;
	}
	return true;
}

Bitmapset *
PruningSelect(PlanState *append)
{
	return LOOKAHEAD_FIND_MATCHING_SUBPLANS(pruning_state(append));
}
