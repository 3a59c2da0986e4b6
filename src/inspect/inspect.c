/*-------------------------------------------------------------------------
 *
 * inspect.c
 *		What the SQL functions that describe a relation have in common.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "inspect/inspect.h"
#include "observe/progress.h"
#include "utils/resowner.h"
#include "utils/varlena.h"

Relation
InspectOpenByName(text *name)
{
	List	   *names = textToQualifiedNameList(name);

	return relation_openrv(makeRangeVarFromNameList(names), AccessShareLock);
}

void
InspectClose(Relation rel)
{
	ProgressEnd();
	relation_close(rel, AccessShareLock);
}

void
InspectRefuseOtherTemp(Relation rel, const char *what)
{
	if (RELATION_IS_OTHER_TEMP(rel))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot access temporary %s of other sessions", what)));
}

void
InspectRefuseInvalid(Relation index)
{
	if (!index->rd_index->indisvalid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\" is not valid",
						RelationGetRelationName(index))));
}

void
InspectCheckIndex(Relation rel, Oid am, const char *kind, const char *what)
{
	if (rel->rd_rel->relkind != RELKIND_INDEX || rel->rd_rel->relam != am)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("relation \"%s\" is not a %s index",
						RelationGetRelationName(rel), kind),
				 InspectHintPartitions(rel)));
	InspectRefuseOtherTemp(rel, what);
	InspectRefuseInvalid(rel);
}

int
InspectHintPartitions(Relation rel)
{
	if (!RELKIND_HAS_PARTITIONS(rel->rd_rel->relkind))
		return 0;
	return errhint("Name one of its partitions instead: pg_partition_tree() lists them.");
}

ItemCounts
InspectCountItems(Page page, OffsetNumber first)
{
	OffsetNumber last = PageGetMaxOffsetNumber(page);
	ItemCounts	counts = {0};

	for (OffsetNumber offset = first; offset <= last; offset++)
	{
		ItemId		item = PageGetItemId(page, offset);

		if (ItemIdIsDead(item))
		{
			counts.dead++;
			counts.dead_len += ItemIdGetLength(item);
		}
		else
		{
			counts.live++;
			counts.live_len += ItemIdGetLength(item);
		}
	}
	return counts;
}

ErrorData *
InspectTry(void (*function) (void *arg), void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		function(arg);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return error;
}

bool
InspectErrorIsOfSession(const ErrorData *error)
{
	int			category = ERRCODE_TO_CATEGORY(error->sqlerrcode);

	return category == ERRCODE_TO_CATEGORY(ERRCODE_QUERY_CANCELED) ||
		category == ERRCODE_TO_CATEGORY(ERRCODE_INSUFFICIENT_RESOURCES) ||
		category == ERRCODE_TO_CATEGORY(ERRCODE_T_R_SERIALIZATION_FAILURE);
}

double
InspectRounded(double value)
{
	char		digits[400];	/* DBL_MAX has 309 before the point */

	snprintf(digits, sizeof(digits), "%.2f", value);
	return strtod(digits, NULL);
}
