/*-------------------------------------------------------------------------
 *
 * explain.c
 *		What EXPLAIN (ANALYZE) says of taken nodes; see explain.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "exec/explain.h"
#include "exec/takeover.h"

#if LOOKAHEAD_HAVE_EXPLAIN_HOOK

#include "commands/defrem.h"
#include "commands/explain.h"
#include "commands/explain_format.h"
#include "commands/explain_state.h"

static explain_per_node_hook_type prev_explain_per_node = NULL;
static int	extension_id;

/* What the option LOOKAHEAD was set to in this EXPLAIN. */
static void
set_option(ExplainState *es, DefElem *option, ParseState *pstate)
{
	bool	   *asked = palloc_object(bool);

	*asked = defGetBoolean(option);
	SetExplainExtensionState(es, extension_id, asked);
}

void
AheadExplainUnused(const char *reason, ExplainState *es)
{
	if (es->format == EXPLAIN_FORMAT_TEXT)
	{
		ExplainIndentText(es);
		appendStringInfo(es->str, "Look-Ahead: not used (%s)\n", reason);
	}
	else
		ExplainPropertyText("Look-Ahead", reason, es);
}

static void
explain_node(PlanState *planstate, List *ancestors, const char *relationship,
			 const char *plan_name, ExplainState *es)
{
	bool	   *option = GetExplainExtensionState(es, extension_id);
	bool		asked = option != NULL && *option;
	AheadNode  *base;
	const char *refusal;

	if (prev_explain_per_node)
		prev_explain_per_node(planstate, ancestors, relationship, plan_name,
							  es);

	/* the line counts blocks, so BUFFERS shows it, too */
	if (!es->analyze || (!es->buffers && !asked) ||
		planstate->instrument == NULL || planstate->instrument->nloops == 0)
		return;
	base = AheadNodeFind(planstate);
	if (base != NULL)
		base->methods->explain(base, asked, es);
	else if (asked && (refusal = TakeoverRefusal(planstate)) != NULL)
		AheadExplainUnused(refusal, es);
}

void
AheadExplainInit(void)
{
	extension_id = GetExplainExtensionId("pg_lookahead");
	LOOKAHEAD_REGISTER_EXPLAIN_OPTION("lookahead", set_option);
	prev_explain_per_node = explain_per_node_hook;
	explain_per_node_hook = explain_node;
}

#else

void
AheadExplainInit(void)
{
}

#endif
