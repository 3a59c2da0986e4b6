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

Refusal
WriteOpenKeys(WriteNode *node, const KeysBounds *bounds)
{
	ResultRelInfo *table = WriteTable(node);
	AheadQuery *query = node->base.query;
	int			n = table->ri_NumIndices;
	bool	   *conflicts = palloc0_array(bool, Max(1, n));

	for (int i = 0; i < n; i++)
		conflicts[i] = table->ri_IndexRelationDescs[i] != NULL &&
			node_conflicts_in(node, table->ri_IndexRelationDescs[i]);
	if (query->econtext == NULL)
		query->econtext = CreateExprContext(query->estate);
	return KeysAheadOpen(&node->keys, query->estate, query->econtext,
						 table->ri_RelationDesc, table->ri_IndexRelationDescs,
						 conflicts, n, bounds);
}

int64
WriteMisses(const WriteNode *node)
{
	ResultRelInfo *table = WriteTable(node);
	int64		sum = 0;

	for (int i = 0; i < table->ri_NumIndices; i++)
	{
		int64		misses;

		if (table->ri_IndexRelationDescs[i] == NULL)
			continue;
		misses = IndexMisses(table->ri_IndexRelationDescs[i]);
		if (misses < 0)
			return -1;
		sum += misses;
	}
	return sum;
}

void
WriteCountForNode(PlanState *child, const BufferUsage *before)
{
	if (child->instrument != NULL &&
		LOOKAHEAD_INSTRUMENTATION(child)->need_bufusage)
		BufferUsageAccumDiff(&LOOKAHEAD_INSTRUMENTATION(child)->bufusage_start,
							 &pgBufferUsage, before);
}
