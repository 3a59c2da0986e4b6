/*-------------------------------------------------------------------------
 *
 * table.c
 *		The subscriber's tables, and the look-ups of changes of their rows.
 *
 * An UPDATE makes entries in all indexes or in none, and only the old row and
 * the room in its page tell which.  So the new rows of UPDATEs are looked up if
 * half of the last UPDATEs came to an index other than the identity index.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "apply/apply.h"
#include "catalog/index.h"
#include "compat.h"
#include "early/harmless.h"
#include "executor/executor.h"
#include "lookup/relations.h"
#include "nodes/miscnodes.h"
#include "optimizer/optimizer.h"
#include "port/pg_bitutils.h"
#include "replication/logicalproto.h"
#include "replication/logicalrelation.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/partcache.h"
#include "utils/rel.h"
#include "write/index_keys.h"

/* The last UPDATEs that are remembered, in bits. */
#define UPDATES 8

/*
 * The most tables and partitions that are remembered; others are left to the
 * server.
 */
#define MAX_TABLES 1024

/* The number of a partition. */
#define PARTITION_NUMBER(oid) ((uint64) 1 << 32 | (oid))

/* How a value of a column is made of what the publisher sends. */
typedef struct ColumnInput
{
	int			sent;			/* column of the row that is sent, or -1 */
	Oid			param;			/* of both functions */
	FmgrInfo	text;
	FmgrInfo	binary;
} ColumnInput;

struct ApplyTable
{
	/* the key: the publisher's OID, as sent; or ours, of a partition */
	uint64		number;
	char	   *description;	/* what the publisher says of it */
	int			length;
	ApplyTable *whole;			/* of a partition, which has no description */
	uint32		whole_opening;	/* when the partition was found */

	/* of this round */
	uint32		round;			/* the last one that asked for the table */
	bool		is_open;
	ApplyTable *next_open;

	/* as long as nothing changes */
	TableRelations relations;
	uint32		opening;		/* how often they have been forgotten */
	MemoryContext memory;		/* of what follows; or NULL */
	bool		is_served;		/* else its changes are left to the server */
	ColumnInput *inputs;		/* one for each column */
	TupleTableSlot *row;
	KeysAhead	rings[2];		/* by ApplyRing */
	Relation	watched;		/* one of the other indexes, or NULL */
	int64		fetches;		/* from it, when a change arrived */
	uint8		touched;		/* a bit for each of the last UPDATEs */
};

static HTAB *tables = NULL;		/* by number; no entry is ever removed */
static ApplyTable *opened = NULL;	/* in this round */
static uint32 this_round = 1;	/* its number */

/* Forget what is known of the subscriber's table. */
static void
table_forget(ApplyTable *table)
{
	if (table->memory != NULL)
		MemoryContextDelete(table->memory);
	table->memory = NULL;
	table->is_served = false;
	table->relations = (TableRelations) {0};
	memset(table->rings, 0, sizeof(table->rings));
	table->opening++;
}

void
ApplyTablesForget(void)
{
	HASH_SEQ_STATUS status;
	ApplyTable *table;

	opened = NULL;
	this_round++;
	if (tables == NULL)
		return;
	hash_seq_init(&status, tables);
	while ((table = hash_seq_search(&status)) != NULL)
		table_forget(table);
}

/* A table or partition, all zero if it is new; NULL if there is none. */
static ApplyTable *
table_find(uint64 number, HASHACTION action)
{
	ApplyTable *table;
	bool		found;

	if (tables == NULL)
	{
		HASHCTL		control = {.keysize = sizeof(uint64),
							   .entrysize = sizeof(ApplyTable)};

		tables = hash_create("look-ahead tables", 64, &control,
							 HASH_ELEM | HASH_BLOBS);
	}
	table = hash_search(tables, &number,
						hash_get_num_entries(tables) < MAX_TABLES ?
						action : HASH_FIND, &found);
	if (table != NULL && !found)
		*table = (ApplyTable) {.number = number};
	return table;
}

void
ApplyTableDescribe(const char *message, int length, bool in_stream)
{
	int			skip = APPLY_HEADER + 1 + (in_stream ? sizeof(uint32) : 0);
	ApplyTable *table;
	uint32		remote;

	if (length < skip + (int) sizeof(uint32))
		return;
	memcpy(&remote, message + skip, sizeof(remote));
	table = table_find(remote, HASH_ENTER);
	if (table == NULL)
		return;
	if (table->description != NULL)
		pfree(table->description);
	table_forget(table);
	table->length = length - skip;

	/* the zero byte behind it belongs to it */
	table->description = MemoryContextAlloc(TopMemoryContext,
											table->length + 1);
	memcpy(table->description, message + skip, table->length + 1);
}

/* The columns of which the partition, or the keys of indexes, are made. */
static Bitmapset *
table_key_columns(const TableRelations *relations)
{
	PartitionKey key = relations->rel->rd_partkey;
	Bitmapset  *columns = NULL;

	for (int i = 0; key != NULL && i < key->partnatts; i++)
		columns = bms_add_member(columns, key->partattrs[i] -
								 FirstLowInvalidHeapAttributeNumber);
	for (int i = 0; i < relations->nindexes; i++)
	{
		IndexInfo  *info = BuildIndexInfo(relations->indexes[i]);

		for (int j = 0; j < info->ii_NumIndexKeyAttrs; j++)
			columns = bms_add_member(columns, info->ii_IndexAttrNumbers[j] -
									 FirstLowInvalidHeapAttributeNumber);
		pull_varattnos((Node *) info->ii_Expressions, 1, &columns);
		pull_varattnos((Node *) info->ii_Predicate, 1, &columns);
	}
	return columns;
}

/*
 * Find out how rows are made of what is sent.  The types that are compared
 * infallibly are made by the server's own code, too.
 */
static void
table_make_inputs(ApplyTable *table, const LogicalRepRelation *description)
{
	TupleDesc	desc = RelationGetDescr(table->relations.rel);
	Bitmapset  *columns = table_key_columns(&table->relations);

	table->inputs = palloc0_array(ColumnInput, desc->natts);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);
		ColumnInput *input = &table->inputs[i];
		Oid			text;
		Oid			binary;

		input->sent = -1;
		if (!bms_is_member(i + 1 - FirstLowInvalidHeapAttributeNumber,
						   columns) ||
			!ComparesInfallibly(column->atttypid, column->attcollation))
			continue;
		for (int j = 0; j < description->natts; j++)
			if (strcmp(description->attnames[j], NameStr(column->attname)) == 0)
				input->sent = j;
		getTypeInputInfo(column->atttypid, &text, &input->param);
		getTypeBinaryInputInfo(column->atttypid, &binary, &input->param);
		fmgr_info(text, &input->text);
		fmgr_info(binary, &input->binary);
	}
	table->row =
		MakeSingleTupleTableSlot(CreateTupleDescCopy(desc), &TTSOpsVirtual);
}

/* Make the look-ups of a table; false if there is nothing to look up. */
static bool
table_make(ApplyTable *table, const LogicalRepRelation *description)
{
	const TableRelations *relations = &table->relations;
	Relation	rel = relations->rel;
	EState	   *estate = CreateExecutorState();
	ExprContext *econtext = CreateExprContext(estate);
	Oid			identity = GetRelationIdentityOrPK(rel);
	const bool	finds_row = true;
	Relation	by_key = NULL;
	RowsBounds	bounds;

	if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
	{
		table_make_inputs(table, description);
		return RoutingIsHarmless(rel);
	}
	if (RelationUsesLocalBuffers(rel) ||
		RowsAheadBounds(rel, &bounds) != NOT_REFUSED)
		return false;
	table_make_inputs(table, description);
	table->watched = NULL;
	for (int i = 0; i < relations->nindexes; i++)
		if (relations->index_oids[i] == identity)
			by_key = relations->indexes[i];
		else
			table->watched = relations->indexes[i];
	(void) IndexKeysOpen(&table->rings[BY_KEY], estate, econtext, rel, &by_key,
						 &finds_row, 1, &bounds);
	(void) IndexKeysOpen(&table->rings[ENTRIES], estate, econtext, rel,
						 relations->indexes, NULL, relations->nindexes,
						 &bounds);
	return table->rings[BY_KEY].rows != NULL ||
		table->rings[ENTRIES].rows != NULL;
}

/* Open a table of which nothing is known, unless that cannot be done now. */
static void
table_open_anew(ApplyTable *table)
{
	const ApplyTable *whole = table->whole != NULL ? table->whole : table;
	LogicalRepRelation *description;
	StringInfoData s;
	MemoryContext old;

	table_forget(table);
	table->whole_opening = whole->opening;
	initReadOnlyStringInfo(&s, whole->description, whole->length);
	description = logicalrep_read_rel(&s);
	table->memory = AllocSetContextCreate(TopMemoryContext, "look-ahead table",
										  ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(table->memory);
	table->is_served =
		(whole != table ?
		 TableFindPartition(&table->relations, (Oid) table->number) :
		 TableFind(&table->relations, description->nspname,
				   description->relname)) &&
		table_make(table, description);
	MemoryContextSwitchTo(old);
}

/* Open a table in this round, unless that was tried; false if it cannot be. */
static bool
table_open_for_round(ApplyTable *table)
{
	if (table->round == this_round)
		return table->is_open;
	table->round = this_round;
	table->is_open = table->is_served && TableOpenAgain(&table->relations);
	if (!TableIsCurrent(&table->relations) ||
		(table->whole != NULL &&
		 table->whole_opening != table->whole->opening))
	{
		table_open_anew(table);
		table->is_open = table->is_served;
	}
	if (table->is_open && table->relations.nindexes > 0)
	{
		KeysAheadForgetSizes(&table->rings[BY_KEY]);
		KeysAheadForgetSizes(&table->rings[ENTRIES]);
		table->next_open = opened;
		opened = table;
	}
	return table->is_open;
}

/* Make a value of what was sent; false if that cannot be done. */
static bool
table_column_value(ColumnInput *input, int32 typmod, LogicalRepTupleData *sent,
				   Datum *value)
{
	ErrorSaveContext problem = {T_ErrorSaveContext};
	StringInfo	said;

	if (input->sent < 0 || input->sent >= sent->ncols)
		return false;
	said = &sent->colvalues[input->sent];
	if (said->data == NULL || said->len > BLCKSZ)
		return false;			/* no index has such a key */
	said->cursor = 0;			/* it may have been read for another ring */
	if (sent->colstatus[input->sent] != LOGICALREP_COLUMN_BINARY)
		return InputFunctionCallSafe(&input->text, said->data,
									 input->param, typmod,
									 (Node *) &problem, value);
	*value = ReceiveFunctionCall(&input->binary, said, input->param, typmod);
	return true;
}

/* Make a row of what was sent.  A value that is not known is NULL. */
static void
table_make_row(ApplyTable *table, LogicalRepTupleData *sent)
{
	TupleTableSlot *row = table->row;
	TupleDesc	desc = row->tts_tupleDescriptor;

	ExecClearTuple(row);
	for (int i = 0; i < desc->natts; i++)
		row->tts_isnull[i] =
			!table_column_value(&table->inputs[i],
								TupleDescAttr(desc, i)->atttypmod, sent,
								&row->tts_values[i]);
	ExecStoreVirtualTuple(row);
}

/*
 * The table that a row is in, open in this round, or NULL: one of its
 * partitions if the publisher names a partitioned table.
 */
static ApplyTable *
table_holding(ApplyTable *table, LogicalRepTupleData *sent)
{
	ApplyTable *part;
	Oid			oid;

	if (table->relations.rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		return table;
	table_make_row(table, sent);
	oid = RoutingFind(table->relations.rel, table->row);
	if (!OidIsValid(oid))
		return NULL;
	part = table_find(PARTITION_NUMBER(oid), HASH_ENTER);
	if (part == NULL)
		return NULL;
	part->whole = table;
	return table_open_for_round(part) ? part : NULL;
}

/* Add a row to a ring, if there is one and room in it. */
static void
table_add_row(ApplyChange *change, ApplyRing ring, LogicalRepTupleData *sent)
{
	ApplyTable *table = change->table;
	KeysAhead  *ahead = &table->rings[ring];

	if (ahead->rows == NULL || !RowsAheadHasRoom(ahead->rows))
		return;
	table_make_row(table, sent);
	KeysAheadAdd(ahead, table->row);
	change->in_ring[ring] = true;
}

/* The table that a change names, or NULL. */
static ApplyTable *
table_of_change(const ApplyChange *change, const char *said, int length)
{
	uint32		remote;

	if (change->table != NULL)
		return change->table->whole != NULL ?
			change->table->whole : change->table;
	if (length < (int) sizeof(remote))
		return NULL;
	memcpy(&remote, said, sizeof(remote));
	return table_find(remote, HASH_FIND);
}

/*
 * New rows of UPDATEs that change the key of a partitioned table may belong to
 * another partition, and are not looked up.
 */
void
ApplyChangeAdd(ApplyChange *change, const char *message, int length)
{
	const char *said = message + APPLY_HEADER + 1;
	char		action = message[APPLY_HEADER];
	ApplyTable *table;
	LogicalRepTupleData old_row;
	LogicalRepTupleData new_row;
	StringInfoData s;
	bool		has_old = action == LOGICAL_REP_MSG_DELETE;

	length -= APPLY_HEADER + 1;
	table = table_of_change(change, said, length);
	if (table == NULL || !table_open_for_round(table) ||
		(change->table != NULL && table_open_for_round(change->table) &&
		 change->opening == change->table->opening))
		return;
	initReadOnlyStringInfo(&s, unconstify(char *, said), length);
	if (action == LOGICAL_REP_MSG_INSERT)
		(void) logicalrep_read_insert(&s, &new_row);
	else if (action == LOGICAL_REP_MSG_UPDATE)
		(void) logicalrep_read_update(&s, &has_old, &old_row, &new_row);
	else
		(void) logicalrep_read_delete(&s, &old_row);
	table = table_holding(table, has_old ? &old_row : &new_row);
	if (table == NULL)
		return;
	*change = (ApplyChange) {.table = table, .opening = table->opening,
							 .action = action};
	if (action != LOGICAL_REP_MSG_INSERT)
		table_add_row(change, BY_KEY, has_old ? &old_row : &new_row);
	if (action == LOGICAL_REP_MSG_INSERT ||
		(action == LOGICAL_REP_MSG_UPDATE &&
		 pg_popcount32(table->touched) >= UPDATES / 2 &&
		 !(has_old && table->whole != NULL)))
		table_add_row(change, ENTRIES, &new_row);
}

void
ApplyTablesRead(ApplyCounters *counters)
{
	for (; opened != NULL; opened = opened->next_open)
		for (int i = 0; i < lengthof(opened->rings); i++)
		{
			KeysAhead  *ring = &opened->rings[i];
			LookupCounters *pages = &ring->lookups.counters;

			if (ring->rows != NULL)
				KeysAheadRead(ring);
			counters->pages.leaf_blocks_read += pages->leaf_blocks_read;
			counters->pages.heap_blocks_read += pages->heap_blocks_read;
			counters->pages.blocks_hit += pages->blocks_hit;
			counters->pages.blocks_unused += pages->blocks_unused;
			*pages = (LookupCounters) {0};
		}
	this_round++;
}

/* The accesses to the index that is watched; 0 if they are not counted. */
static int64
table_fetches(const ApplyTable *table)
{
	return table->watched == NULL || table->watched->pgstat_info == NULL ? 0 :
		LOOKAHEAD_COUNT(table->watched, blocks_fetched);
}

/*
 * The rows leave the rings even if the table is not current: counters go each
 * time that they are reported.
 */
bool
ApplyChangeArrive(ApplyChange *change)
{
	ApplyTable *table = change->table;
	bool		is_known = table != NULL && change->opening == table->opening;
	bool		is_current = is_known && TableIsCurrent(&table->relations);

	for (int i = 0; is_known && i < lengthof(table->rings); i++)
		if (change->in_ring[i] && is_current)
			(void) KeysAheadNext(&table->rings[i]);
		else if (change->in_ring[i])
			KeysAheadSkip(&table->rings[i], true);
	if (is_current)
		table->fetches = table_fetches(table);
	else
		change->table = NULL;
	return is_known && (change->in_ring[BY_KEY] || change->in_ring[ENTRIES]);
}

void
ApplyChangePass(ApplyChange *change)
{
	ApplyTable *table = change->table;

	if (table == NULL || !TableIsCurrent(&table->relations))
		return;
	if (change->action == LOGICAL_REP_MSG_UPDATE)
		table->touched = table->touched << 1 |
			(table_fetches(table) > table->fetches);
	for (int i = 0; i < lengthof(table->rings); i++)
		KeysAheadPass(&table->rings[i]);
	if (change->in_ring[ENTRIES])
		IndexKeysNoteReads(&table->rings[ENTRIES]);
}
