/*-------------------------------------------------------------------------
 *
 * write_node.c
 *		What plan_rows.c and one_row.c have in common; see write_node.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "utils/rel.h"
#include "write/write_node.h"

/* Does the server look for conflicting rows in an index? */
static bool
node_conflicts_in(const WriteNode *node, Relation index)
{
	const ModifyTable *plan = (const ModifyTable *) node->base.plan_state->plan;
	List	   *arbiters = WriteTable(node)->ri_onConflictArbiterIndexes;

	return plan->onConflictAction != ONCONFLICT_NONE &&
		index->rd_index->indisunique &&
		(arbiters == NIL ||
		 list_member_oid(arbiters, RelationGetRelid(index)));
}

bool
WriteHasTriggers(const ResultRelInfo *table)
{
	const TriggerDesc *triggers = table->ri_TrigDesc;

	return triggers != NULL &&
		(triggers->trig_insert_before_row ||
		 triggers->trig_insert_instead_row ||
		 triggers->trig_update_before_row);
}

Refusal
WriteOpenKeys(WriteNode *node, const RowsBounds *bounds)
{
	ResultRelInfo *table = WriteTable(node);
	AheadQuery *query = node->base.query;
	int			n = table->ri_NumIndices;
	Relation   *indexes = palloc0_array(Relation, Max(1, n));
	bool	   *conflicts = palloc0_array(bool, Max(1, n));
	int			first = 0;

	for (int i = 0; i < n; i++)
	{
		indexes[i] = table->ri_IndexRelationDescs[i];
		conflicts[i] = indexes[i] != NULL &&
			node_conflicts_in(node, indexes[i]);
		if (conflicts[i] && !conflicts[first])
			first = i;
	}

	/*
	 * While the pages of the other indexes of a row are being read, the server
	 * reads that of the index to which it comes first.
	 */
	if (node->one != NULL && n > 0)
		indexes[first] = NULL;
	if (query->econtext == NULL)
		query->econtext = CreateExprContext(query->estate);
	return IndexKeysOpen(&node->part->keys, query->estate, query->econtext,
						 table->ri_RelationDesc, indexes, conflicts, n,
						 bounds);
}

WriteCounters
WriteNodeCounters(const WriteNode *node)
{
	WriteCounters all = {0};

	for (const WritePart *part = &node->whole; part != NULL; part = part->next)
		KeysAheadSum(&part->keys, &all);
	return all;
}

void
WriteCountForNode(PlanState *child, const BufferUsage *before)
{
	if (child->instrument != NULL &&
		LOOKAHEAD_INSTRUMENTATION(child)->need_bufusage)
		BufferUsageAccumDiff(&LOOKAHEAD_INSTRUMENTATION(child)->bufusage_start,
							 &pgBufferUsage, before);
}
