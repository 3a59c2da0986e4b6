/*-------------------------------------------------------------------------
 *
 * table.c
 *		The subscriber's tables, and the look-ups of changes of their rows; see
 *		table.h.
 *
 * Invariants:
 * - A table is looked at only in a transaction that has changed it, and has
 *	 locked it therefore.  No further lock is waited for.
 * - Values are made of what was sent only for types of an allow list, whose
 *	 input functions are the server's own.
 * - What is known of a table is forgotten once it, or one of its indexes, has
 *	 been invalidated.  So long, pointers to their cache entries are good,
 *	 outside of rounds, too.
 *
 * An UPDATE makes entries in all indexes or in none, and only the old row and
 * the room in its page tell which.  So the new rows of UPDATEs are looked up if
 * half of the last UPDATEs came to an index other than the identity index.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "apply/table.h"
#include "catalog/catalog.h"
#include "catalog/pg_index_d.h"
#include "compat.h"
#include "early/infallible.h"
#include "executor/executor.h"
#include "lookup/relations.h"
#include "nodes/miscnodes.h"
#include "port/pg_bitutils.h"
#include "replication/logicalproto.h"
#include "replication/logicalrelation.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "write/keys_ahead.h"

/* The last UPDATEs that are remembered, in bits. */
#define UPDATES 8

/* More tables than this are not looked up at a time. */
#define MAX_TABLES 64

/* How a value of a column is made of what the publisher sends. */
typedef struct ColumnInput
{
	int			sent;			/* column of the row that is sent, or -1 */
	Oid			text_param;
	Oid			binary_param;
	FmgrInfo	text;
	FmgrInfo	binary;
} ColumnInput;

struct ApplyTable
{
	Oid			remote;			/* the publisher's OID; key of the table */
	char	   *description;	/* what the publisher says of it */
	int			length;

	/* of this round */
	uint32		round;			/* the last one that asked for the table */
	bool		is_open;
	ApplyTable *next_open;

	/* as long as nothing changes */
	TableRelations relations;
	uint32		opening;		/* how often they have been found */
	MemoryContext memory;		/* NULL: its changes are left to the server */
	ColumnInput *inputs;		/* one for each column */
	TupleTableSlot *row;
	KeysAhead	by_key;			/* rows whose identity is looked up */
	KeysAhead	entries;		/* rows whose entries in other indexes are */
	Relation	watched;		/* one of these, or NULL */
	int64		fetches;		/* from it, when a change arrived */
	uint8		touched;		/* a bit for each of the last UPDATEs */
};

static MemoryContext memory = NULL; /* of all tables */
static HTAB *tables = NULL;		/* by the publisher's OID */
static int	ntables = 0;		/* that have memory */
static ApplyTable *opened = NULL;	/* in this round */
static uint32 this_round = 1;	/* its number */

/* Forget what is known of the subscriber's table. */
static void
table_forget(ApplyTable *table)
{
	if (table->memory != NULL)
	{
		MemoryContextDelete(table->memory);
		ntables--;
	}
	table->memory = NULL;
	table->relations = (TableRelations) {0};
	table->by_key = table->entries = (KeysAhead) {0};
}

void
ApplyTablesReset(void)
{
	HASH_SEQ_STATUS status;
	ApplyTable *table;

	opened = NULL;
	if (tables == NULL)
		return;
	hash_seq_init(&status, tables);
	while ((table = hash_seq_search(&status)) != NULL)
		table_forget(table);
}

/* The publisher's OID of a table, which begins what it says. */
static Oid
table_remote(const char *said)
{
	uint32		remote;

	memcpy(&remote, said, sizeof(remote));
	return pg_ntoh32(remote);
}

void
ApplyTableDescribe(const char *message, int length, bool in_stream)
{
	int			skip = APPLY_HEADER + 1 + (in_stream ? sizeof(uint32) : 0);
	ApplyTable *table;
	bool		found;
	char	   *copy;
	Oid			remote;

	if (length < skip + (int) sizeof(uint32))
		return;
	if (tables == NULL)
	{
		HASHCTL		control = {.keysize = sizeof(Oid),
							   .entrysize = sizeof(ApplyTable)};

		memory = AllocSetContextCreate(TopMemoryContext, "look-ahead tables",
									   ALLOCSET_DEFAULT_SIZES);
		control.hcxt = memory;
		tables = hash_create("look-ahead tables", 64, &control,
							 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	copy = MemoryContextAlloc(memory, length - skip + 1);
	memcpy(copy, message + skip, length - skip + 1);	/* ends with a zero */
	remote = table_remote(copy);
	table = hash_search(tables, &remote, HASH_ENTER, &found);
	if (found)
	{
		pfree(table->description);
		table_forget(table);
	}
	else
		*table = (ApplyTable) {.remote = remote};
	table->description = copy;
	table->length = length - skip;
}

/*
 * Find out how the values of a column are made of what is sent.  The types that
 * are compared infallibly are made by the server's own code, too.
 */
static void
table_make_input(ApplyTable *table, const LogicalRepRelation *description,
				 Form_pg_attribute column, ColumnInput *input)
{
	Oid			text;
	Oid			binary;

	if (column->attisdropped ||
		!ComparesInfallibly(column->atttypid, column->attcollation))
		return;
	for (int i = 0; i < description->natts; i++)
		if (strcmp(description->attnames[i], NameStr(column->attname)) == 0)
			input->sent = i;
	getTypeInputInfo(column->atttypid, &text, &input->text_param);
	getTypeBinaryInputInfo(column->atttypid, &binary, &input->binary_param);
	fmgr_info_cxt(text, &input->text, table->memory);
	fmgr_info_cxt(binary, &input->binary, table->memory);
}

/* Find out how rows are made of what is sent: columns that an index needs. */
static void
table_make_inputs(ApplyTable *table, const LogicalRepRelation *description)
{
	TupleDesc	desc = RelationGetDescr(table->relations.rel);
	bool		all = false;
	Bitmapset  *columns = NULL;

	for (int i = 0; i < table->relations.nindexes; i++)
	{
		Relation	rel = table->relations.indexes[i];
		const FormData_pg_index *index = rel->rd_index;

		all |= !heap_attisnull(rel->rd_indextuple, Anum_pg_index_indpred, NULL);
		for (int j = 0; j < index->indnkeyatts; j++)
			if (index->indkey.values[j] > 0)
				columns = bms_add_member(columns, index->indkey.values[j] - 1);
			else
				all = true;		/* an expression */
	}
	table->inputs = palloc0_array(ColumnInput, desc->natts);
	for (int i = 0; i < desc->natts; i++)
	{
		table->inputs[i].sent = -1;
		if (all || bms_is_member(i, columns))
			table_make_input(table, description, TupleDescAttr(desc, i),
							 &table->inputs[i]);
	}
	table->row =
		MakeSingleTupleTableSlot(CreateTupleDescCopy(desc), &TTSOpsVirtual);
}

/* Make the two rings of a table; false if there is nothing to look up. */
static bool
table_make_rings(ApplyTable *table)
{
	const TableRelations *relations = &table->relations;
	Relation	rel = relations->rel;
	EState	   *estate = CreateExecutorState();
	ExprContext *econtext = CreateExprContext(estate);
	Oid			identity = GetRelationIdentityOrPK(rel);
	Relation   *others = palloc0_array(Relation, relations->nindexes);
	bool	   *conflicts = palloc0_array(bool, relations->nindexes);
	const bool	finds_row = true;
	Relation	by_key = NULL;
	RowsBounds	bounds;

	table->watched = NULL;
	table->touched = 0;
	for (int i = 0; i < relations->nindexes; i++)
		if (relations->index_oids[i] == identity)
			by_key = relations->indexes[i];
		else
			others[i] = table->watched = relations->indexes[i];
	if (RowsAheadBounds(rel, &bounds) != NOT_REFUSED)
		return false;
	(void) KeysAheadOpen(&table->by_key, estate, econtext, rel, &by_key,
						 &finds_row, 1, &bounds);
	(void) KeysAheadOpen(&table->entries, estate, econtext, rel, others,
						 conflicts, relations->nindexes, &bounds);
	return table->by_key.rows != NULL || table->entries.rows != NULL;
}

/* Is a table one whose changes are looked up? */
static bool
table_is_served(const TableRelations *relations)
{
	Relation	rel = relations->rel;

	return rel->rd_rel->relkind == RELKIND_RELATION &&
		rel->rd_tableam == GetHeapamTableAmRoutine() &&
		!RelationUsesLocalBuffers(rel) && !IsCatalogRelation(rel) &&
		relations->nindexes > 0;
}

/*
 * Open a table of which nothing is known; false if that cannot be done now, or
 * if it is left to the server, until something changes.
 */
static bool
table_open_anew(ApplyTable *table)
{
	LogicalRepRelation *description;
	StringInfoData s;
	MemoryContext old;
	Oid			oid;

	table_forget(table);
	if (ntables == MAX_TABLES)
		return false;
	initReadOnlyStringInfo(&s, table->description, table->length);
	description = logicalrep_read_rel(&s);
	table->memory = AllocSetContextCreate(memory, "look-ahead table",
										  ALLOCSET_SMALL_SIZES);
	ntables++;
	old = MemoryContextSwitchTo(table->memory);
	if (TableFind(&table->relations, description->nspname,
				  description->relname))
	{
		table->opening++;
		if (table_is_served(&table->relations))
		{
			table_make_inputs(table, description);
			if (table_make_rings(table))
			{
				MemoryContextSwitchTo(old);
				return true;
			}
		}
	}
	MemoryContextSwitchTo(old);
	oid = table->relations.oid;
	table_forget(table);
	table->relations.oid = oid;
	table->relations.seen = RelationChanges(oid);
	return false;
}

/* Open a table in this round, unless that was tried; false if it cannot be. */
static bool
table_open_for_round(ApplyTable *table)
{
	if (table->round == this_round)
		return table->is_open;
	table->round = this_round;
	table->is_open = false;
	if (TableIsCurrent(&table->relations))
		table->is_open = table->memory != NULL &&
			TableOpenAgain(&table->relations);
	if (!TableIsCurrent(&table->relations))
		table->is_open = table_open_anew(table);
	if (table->is_open)
	{
		KeysAheadForgetSizes(&table->by_key);
		KeysAheadForgetSizes(&table->entries);
		table->next_open = opened;
		opened = table;
	}
	return table->is_open;
}

/* Make a value of what was sent; false if that cannot be done. */
static bool
column_value(ColumnInput *input, int32 typmod, LogicalRepTupleData *sent,
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
									 input->text_param, typmod,
									 (Node *) &problem, value);
	*value = ReceiveFunctionCall(&input->binary, said, input->binary_param,
								 typmod);
	return true;
}

/*
 * Add a row to a ring, if there is one and room in it.  A value that is not
 * known is NULL, which is looked up in no index.
 */
static bool
ring_add(ApplyTable *table, KeysAhead *ring, LogicalRepTupleData *sent)
{
	TupleTableSlot *row = table->row;

	if (ring->rows == NULL || !RowsAheadHasRoom(ring->rows))
		return false;
	ExecClearTuple(row);
	for (int i = 0; i < row->tts_tupleDescriptor->natts; i++)
		row->tts_isnull[i] =
			!column_value(&table->inputs[i],
						  TupleDescAttr(row->tts_tupleDescriptor, i)->atttypmod,
						  sent, &row->tts_values[i]);
	ExecStoreVirtualTuple(row);
	KeysAheadAdd(ring, row);
	return true;
}

void
ApplyChangeAdd(ApplyChange *change, const char *message, int length)
{
	const char *said = message + APPLY_HEADER + 1;
	ApplyTable *table = change->table;
	LogicalRepTupleData old_row;
	LogicalRepTupleData new_row;
	StringInfoData s;
	bool		has_old = false;

	if (table == NULL && tables != NULL &&
		length >= APPLY_HEADER + 1 + (int) sizeof(uint32))
	{
		Oid			remote = table_remote(said);

		table = hash_search(tables, &remote, HASH_FIND, NULL);
	}
	if (table == NULL || !table_open_for_round(table) ||
		(change->table == table && change->opening == table->opening))
		return;
	*change = (ApplyChange) {.table = table, .opening = table->opening,
							 .action = message[APPLY_HEADER]};
	initReadOnlyStringInfo(&s, unconstify(char *, said),
						   length - APPLY_HEADER - 1);
	switch (change->action)
	{
		case LOGICAL_REP_MSG_INSERT:
			(void) logicalrep_read_insert(&s, &new_row);
			break;
		case LOGICAL_REP_MSG_UPDATE:
			(void) logicalrep_read_update(&s, &has_old, &old_row, &new_row);
			break;
		default:
			(void) logicalrep_read_delete(&s, &old_row);
			has_old = true;
	}
	change->by_key =
		ring_add(table, &table->by_key, has_old ? &old_row : &new_row);
	if (change->action == LOGICAL_REP_MSG_INSERT ||
		(change->action == LOGICAL_REP_MSG_UPDATE &&
		 pg_popcount32(table->touched) >= UPDATES / 2))
		change->entries = ring_add(table, &table->entries, &new_row);
}

void
ApplyTablesRead(void)
{
	for (ApplyTable *table = opened; table != NULL; table = table->next_open)
	{
		if (table->by_key.rows != NULL)
			KeysAheadRead(&table->by_key);
		if (table->entries.rows != NULL)
			KeysAheadRead(&table->entries);
	}
}

/* Tell what a ring has counted. */
static void
ring_tell(KeysAhead *ring, ApplyCounters *counters)
{
	LookupCounters *pages = &ring->shared.lookups.counters;

	counters->index_blocks_read += pages->leaf_blocks_read;
	counters->heap_blocks_read += pages->heap_blocks_read;
	counters->blocks_hit += pages->blocks_hit;
	counters->blocks_unused += pages->blocks_unused;
	*pages = (LookupCounters) {0};
}

void
ApplyTablesEnd(ApplyCounters *counters)
{
	for (; opened != NULL; opened = opened->next_open)
	{
		ring_tell(&opened->by_key, counters);
		ring_tell(&opened->entries, counters);
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
 * The turn of the oldest row of a ring has come.  It leaves the ring even if
 * the table is not current: counters go each time that they are reported.
 */
static void
ring_arrive(KeysAhead *ring, bool is_current)
{
	if (is_current)
		(void) KeysAheadNext(ring);
	else
		KeysAheadSkip(ring);
}

void
ApplyChangeArrive(ApplyChange *change)
{
	ApplyTable *table = change->table;
	bool		is_in_rings = table != NULL && table->memory != NULL &&
		change->opening == table->opening;

	change->arrived = is_in_rings && TableIsCurrent(&table->relations);
	if (change->arrived)
		table->fetches = table_fetches(table);
	if (is_in_rings && change->by_key)
		ring_arrive(&table->by_key, change->arrived);
	if (is_in_rings && change->entries)
		ring_arrive(&table->entries, change->arrived);
}

void
ApplyChangePass(ApplyChange *change)
{
	ApplyTable *table = change->table;

	if (!change->arrived || !TableIsCurrent(&table->relations))
		return;
	if (change->action == LOGICAL_REP_MSG_UPDATE)
		table->touched = table->touched << 1 |
			(table_fetches(table) > table->fetches);
	if (change->by_key)
		KeysAheadPass(&table->by_key);
	if (!change->entries)
		return;
	KeysAheadPass(&table->entries);
	KeysAheadNoteReads(&table->entries);
}
