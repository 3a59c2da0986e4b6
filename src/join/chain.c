/*-------------------------------------------------------------------------
 *
 * chain.c
 *		Nested loops above each other, each the outer child of the next one; see
 *		join_node.h.
 *
 * A column of an outer row is followed down through the outer sides as far as
 * the plans only hand it on, or look it up: the planner may take a key from a
 * row of the inner side though it is equal to a column of the outer row.  The
 * join at which all values of a key are known for the first time is its origin:
 * when the first row comes there, the key is looked up, together with all
 * others of that origin.
 *
 * While the chain's judge is in WATCH, an execution costs no more than to find
 * the judge, and to notice reads that are noticed anyhow.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "exec/ahead_node.h"
#include "exec/judge_timing.h"
#include "exec/takeover.h"
#include "join/join_node.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/* The most joins of one chain that are looked at. */
#define MAX_JOINS 32

/* Each pass leads all keys one page further, or more. */
#define MAX_PASSES 32

/* The judges of chains that the session remembers, at the hash of each key. */
static struct
{
	uint64		key;
	Judge		judge;
}			known[64];

void
ChainLink(JoinNode *node, JoinNode *below)
{
	node->below = below;
	if (below == NULL)
		return;
	below->above = node;
	below->reads_seen = *below->reads;

	/* the topmost one is called first, and is to begin */
	node->is_watched = true;
}

/* The judge of a chain, which is told apart by its inner tables. */
static Judge *
chain_judge(const JoinNode *top)
{
	uint64		key = effective_io_concurrency << 2 | lookahead_debug_force;
	uint64		hash;

	for (const JoinNode *node = top; node != NULL; node = node->below)
		key = (key ^ RelationGetRelid(node->relations[0])) *
			UINT64CONST(0x9E3779B97F4A7C15) + 1;
	hash = key >> 58;
	if (known[hash].key != key)
	{
		known[hash].key = key;
		JudgeInit(&known[hash].judge, JUDGE_CHAINS, lookahead_debug_force);
	}
	return &known[hash].judge;
}

/* The column of a join's outer row that is handed to a parameter, or 0. */
static AttrNumber
chain_column_of_param(const NestLoop *join, int param)
{
	foreach_node(NestLoopParam, handed, join->nestParams)
		if (handed->paramno == param)
			return handed->paramval->varattno;
	return 0;
}

/*
 * The column of the outer row of the join below that a column of a join's outer
 * row is, or is equal to because the inner scan below looks it up; or 0.
 */
static AttrNumber
chain_column_below(const JoinNode *below, AttrNumber column)
{
	PlanState  *join = below->base.plan_state;
	const List *columns = join->plan->targetlist;
	const Var  *var;

	if (column <= 0 || column > list_length(columns))
		return 0;
	var = (const Var *) list_nth_node(TargetEntry, columns, column - 1)->expr;
	if (!IsA(var, Var))
		return 0;
	if (var->varno == OUTER_VAR)
		return var->varattno;
	return chain_column_of_param((const NestLoop *) join->plan,
								 InnerParamOfColumn(innerPlanState(join),
													var->varattno));
}

/*
 * Find the origin of a join's key, and the columns of the row there that it
 * depends on.
 */
static void
chain_find_origin(JoinNode *node)
{
	const NestLoop *join = (NestLoop *) node->base.plan_state->plan;
	int			n = list_length(join->nestParams);
	AttrNumber *columns = palloc_array(AttrNumber, n);
	JoinNode   *origin = node;

	for (int i = 0; i < n; i++)
	{
		const NestLoopParam *param =
			list_nth_node(NestLoopParam, join->nestParams, i);

		columns[i] = param->paramval->varattno;
	}
	while (origin->below != NULL)
	{
		AttrNumber *below = palloc_array(AttrNumber, n);
		bool		all = true;

		for (int i = 0; i < n; i++)
		{
			below[i] = chain_column_below(origin->below, columns[i]);
			all &= below[i] > 0;
		}
		if (!all)
			break;
		columns = below;
		origin = origin->below;
	}
	node->origin = origin;
	node->columns = columns;
}

/* Find all origins; true if there is something to be looked up earlier. */
static bool
chain_find_origins(JoinNode *top)
{
	MemoryContext old =
		MemoryContextSwitchTo(top->base.query->estate->es_query_cxt);
	bool		any = false;
	int			n = 0;

	for (JoinNode *node = top; node != NULL && n < MAX_JOINS;
		 node = node->below, n++)
	{
		chain_find_origin(node);
		if (node->origin == node)
			continue;
		node->origin->looks_up = true;
		any = true;
	}
	MemoryContextSwitchTo(old);
	return any;
}

/* The first row of the chain is asked for. */
static void
chain_begin(JoinNode *top)
{
	Judge	   *judge = chain_judge(top);
	JoinChain  *chain;
	JoinNode   *bottom = top;

	if (judge->mode == JUDGE_ENDING)
		JudgeEntries(judge, 0, 0);
	while (bottom->below != NULL)
		bottom = bottom->below;
	if (judge->mode == JUDGE_WATCH)
	{
		bottom->reads_seen = *bottom->reads;
		bottom->chain_judge = judge;
		return;
	}
	if (!chain_find_origins(top))
	{
		/* another statement has the same tables: as good as cached */
		JudgeUnit(judge, 0, 0, 0, 0, false);
		return;
	}
	chain = MemoryContextAllocZero(top->base.query->estate->es_query_cxt,
								   sizeof(JoinChain));
	chain->judge = judge;
	chain->mode = judge->mode;
	chain->timed = judge->timed;
	chain->reads_before = -1;
	for (JoinNode *node = top; node != NULL; node = node->below)
	{
		node->chain = chain;
		node->is_watched = true;
	}
}

/* The first row of the chain is over: tell the judge. */
static void
chain_end(JoinChain *chain, const JoinNode *bottom)
{
	Judge	   *judge = chain->judge;
	uint64		reads = 0;
	uint64		unused = 0;

	if (judge == NULL)
		return;
	chain->judge = NULL;
	chain->timed = false;

	/* another execution, begun within this one, may have told it things */
	if (judge->mode != chain->mode || chain->reads_before < 0)
		return;
	JudgeUnit(judge,
			  (int) Min(*bottom->reads - chain->reads_before, PG_INT16_MAX),
			  INSTR_TIME_GET_NANOSEC(chain->inside) / 1000.0, 0, 1, false);
	for (const JoinNode *node = bottom; node != NULL; node = node->above)
	{
		const LookupCounters *pages;

		if (node->inner == NULL)
			continue;
		pages = InnerSideCounters(node->inner);
		reads += pages->leaf_blocks_read + pages->heap_blocks_read;
		unused += pages->blocks_unused;
	}
	if (reads > 0)
		JudgeBegunAgain(judge, reads - Min(reads, unused), unused);
}

/* The row that came first is over, and another one is asked for. */
static void
chain_pass_row(JoinNode *node)
{
	if (node->first_row != FIRST_ROW_ARRIVED)
		return;
	node->first_row = FIRST_ROW_OVER;
	InnerSidePass(node->inner);
	if (node->judge.mode < JUDGE_AHEAD)
		JoinExecuteInner(node, false);
}

void
ChainBeforeRow(JoinNode *node)
{
	bool		is_first = !node->asked;

	node->asked = true;
	if (node->above == NULL && is_first)
		chain_begin(node);
	else if (node->chain_judge != NULL)
	{
		/* something has been read for the first row */
		JoinNode   *top = node;

		while (top->above != NULL)
			top = top->above;
		if (chain_find_origins(top))
			JudgeReadSeen(node->chain_judge, InvalidOid, 0);
		node->chain_judge = NULL;
	}
	else if (node->chain != NULL && !is_first)
	{
		chain_pass_row(node);
		if (node->below == NULL)
			chain_end(node->chain, node);
	}
}

/* Begin to look up the key of a join; false if that must not be done. */
static bool
chain_begin_look_up(JoinNode *node)
{
	if (node->first_row != FIRST_ROW_TO_COME ||
		!JoinOpenInner(node, JoinMaxRows(node), true) ||
		!InnerSideIsInfallible(node->inner))
		return false;
	node->first_parts =
		MemoryContextAllocZero(node->base.query->estate->es_query_cxt,
							   InnerSidePartsSize(node->inner));
	JoinExecuteInner(node, true);
	InnerSideBegin(node->inner, node->first_parts);
	node->first_row = FIRST_ROW_LOOKED_UP;
	return true;
}

/* Look up the keys whose origin a join is, whose first row has come. */
static void
chain_look_up(JoinNode *origin, TupleTableSlot *slot)
{
	JoinNode   *nodes[MAX_JOINS];
	int			n = 0;
	bool		done = false;

	/* its own ring does this for the join itself, if there is one */
	for (JoinNode *node = origin; node != NULL; node = node->above)
		if (node->origin == origin &&
			(node != origin || node->judge.mode < JUDGE_AHEAD) &&
			chain_begin_look_up(node))
			nodes[n++] = node;
	for (int pass = 0; !done && pass < MAX_PASSES; pass++)
	{
		CHECK_FOR_INTERRUPTS();
		done = true;
		for (int i = 0; i < n; i++)
			done &= InnerSideLookUp(nodes[i]->inner, nodes[i]->first_parts,
									slot, nodes[i]->columns,
									RowsCertain(&nodes[i]->base) <
									PG_INT64_MAX, pass > 0);
	}
	for (int i = 0; i < n; i++)
		InnerSideStop(nodes[i]->inner, nodes[i]->first_parts);
}

void
ChainAfterRow(JoinNode *node, TupleTableSlot *slot)
{
	JoinChain  *chain = node->chain;
	instr_time	start;

	if (chain->reads_before < 0 && !TupIsNull(slot))
		chain->reads_before = *node->reads;
	if (node->looks_up && chain->mode == JUDGE_AHEAD && !TupIsNull(slot))
	{
		node->looks_up = false;
		INSTR_TIME_SET_CURRENT(start);
		chain_look_up(node, slot);
		JoinStopTiming(node, start);
	}
	if (node->first_row != FIRST_ROW_LOOKED_UP)
		return;
	if (TupIsNull(slot))
	{
		node->first_row = FIRST_ROW_OVER;
		InnerSideForget(node->inner, node->first_parts);
	}
	else
	{
		node->first_row = FIRST_ROW_ARRIVED;
		InnerSideArrive(node->inner, node->first_parts);
	}
}

bool
ChainTakesRow(JoinNode *node, InnerParts *parts)
{
	if (node->first_row != FIRST_ROW_LOOKED_UP)
		return false;
	node->first_row = FIRST_ROW_OVER;
	InnerSideMove(parts, node->first_parts);
	return true;
}

void
ChainEnd(JoinNode *node)
{
	if (node->chain != NULL && node->below == NULL)
		chain_end(node->chain, node);
	else if (node->chain_judge != NULL && *node->reads != node->reads_seen)
		JudgeReadSeen(node->chain_judge, InvalidOid, 0);
	node->chain_judge = NULL;
}
