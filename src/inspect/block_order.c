/*-------------------------------------------------------------------------
 *
 * block_order.c
 *		heap_block_order(): the heap blocks that a scan of a btree would ask
 *		for, in the order in which it would ask.
 *
 * The access method itself reads the index, as for a bitmap scan: without the
 * heap, so nothing is known of visibility.  The result has the entries that are
 * not marked dead, and each TID of a posting list as an entry of its own.  Rows
 * go to a tuplestore, so that no scan and no pin is open when the function
 * returns.
 *
 * Privileges are checked before a relation is locked, so that nobody waits for
 * a lock, or makes others wait, on what they may not read, and once more under
 * the lock.  Input functions of the types of bounds, and what compares keys,
 * may run code of the table's owner (checks of domains, for instance).  That
 * code runs with the owner's rights in a security-restricted operation, as in
 * CREATE INDEX. Since the caller chooses the values that it gets and the
 * temporary objects that it sees, it is run only for callers with the owner's
 * rights.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/nbtree.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "catalog/index.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_authid_d.h"
#include "compat_scan.h"
#include "index/index_page.h"
#include "inspect/inspect.h"
#include "miscadmin.h"
#include "sql_result.h"
#include "storage/bufmgr.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(lookahead_heap_block_order);

/*
 * Refuse who must not learn of an index's entries; no lock is needed.
 *		index	the relation that was named
 *		heap	its table, or the same relation if that is no index
 *
 * Who may read every row of the table may learn of its entries.  A member of
 * pg_stat_scan_tables may for any table, like the pages of any, but without
 * bounds: by these one can search for the values of keys.
 */
static void
order_check_privileges(Oid index, Oid heap, bool bounded)
{
	if (!bounded && has_privs_of_role(GetUserId(), ROLE_PG_STAT_SCAN_TABLES))
		return;
	if (pg_class_aclcheck(heap, GetUserId(), ACL_SELECT) == ACLCHECK_OK &&
		check_enable_rls(heap, InvalidOid, true) != RLS_ENABLED)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for %s \"%s\"",
					index == heap ? "relation" : "index", get_rel_name(index)),
			 bounded ?
				 errdetail("With bounds, SELECT on the table of the index is required, not limited by row-level security.") :
				 errdetail("SELECT on the table of the index, not limited by row-level security, or the privileges of role \"%s\" are required.",
						   "pg_stat_scan_tables")));
}

/* The type of the first column's keys, as its operators take it. */
static Oid
order_key_type(Relation index)
{
	Oid			type = index->rd_opcintype[0];

	/* an operator class for arrays, enums, ranges or rows */
	if (IsPolymorphicType(type) || type == RECORDOID)
		type = TupleDescAttr(RelationGetDescr(index), 0)->atttypid;
	return type;
}

/* Make a scan key: first column, operator of a strategy, value from text. */
static void
order_make_bound(Relation index, StrategyNumber strategy, text *bound,
				 ScanKey key)
{
	Oid			opcintype = index->rd_opcintype[0];
	Oid			opno = get_opfamily_member(index->rd_opfamily[0],
											  opcintype, opcintype, strategy);
	Oid			input,
				ioparam;

	if (!OidIsValid(opno))
		elog(ERROR, "missing operator %d(%u,%u) in opfamily %u", strategy,
			 opcintype, opcintype, index->rd_opfamily[0]);
	getTypeInputInfo(order_key_type(index), &input, &ioparam);
	ScanKeyEntryInitialize(key, 0, 1, strategy, opcintype,
						   index->rd_indcollation[0], get_opcode(opno),
						   OidInputFunctionCall(input, text_to_cstring(bound),
												ioparam, -1));
}

/*
 * Open an index and its table, locking the table first, as everybody does.
 * What is no btree is refused, if the caller may at least read it.
 */
static void
order_open_index(Oid relid, bool bounded, Relation *table, Relation *index)
{
	Oid			heap = IndexGetRelation(relid, true);
	Oid			type;

	*table = NULL;
	order_check_privileges(relid, OidIsValid(heap) ? heap : relid, bounded);
	if (OidIsValid(heap))
		*table = table_open(heap, AccessShareLock);
	*index = relation_open(relid, AccessShareLock);
	InspectCheckIndex(*index, BTREE_AM_OID, "btree", "indexes");

	/* its OID may have become another index's before we had the lock */
	if (*table == NULL || (*index)->rd_index->indrelid != heap)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("could not open the table of index \"%s\"",
						RelationGetRelationName(*index)),
				 errdetail("The index was dropped and another one was created concurrently.")));
	order_check_privileges(relid, heap, bounded);
	type = (*index)->rd_opcintype[0];
	if (bounded && type != ANYENUMOID &&
		get_typtype(type) == TYPTYPE_PSEUDO &&
		!has_privs_of_role(GetUserId(), (*table)->rd_rel->relowner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for index \"%s\"",
						RelationGetRelationName(*index)),
				 errdetail("Bounds on a column of arrays, rows or ranges require the privileges of the table's owner, whose code may run to convert them.")));
}

/*
 * A damaged link can lead a scan in circles.  No index has more entries than
 * its pages can hold.
 */
static void
order_check_count(Relation index, int64 entries, int64 *most)
{
	if (entries <= *most)
		return;
	*most =
		(int64) RelationGetNumberOfBlocks(index) * (int64) MaxTIDsPerBTreePage;
	if (entries > *most)
		ereport(ERROR,
				(errcode(ERRCODE_INDEX_CORRUPTED),
				 errmsg("index \"%s\" gives more entries than its pages can hold",
						RelationGetRelationName(index)),
				 errdetail("Its leaf pages are probably linked in a circle."),
				 errhint("Please REINDEX it.")));
}

/*
 * lookahead.heap_block_order(index regclass, lower text, upper text,
 *							  max_entries bigint)
 *		returns setof (entry bigint, block bigint)
 *
 * Entries are counted from 1.  Bounds are inclusive, on the first column, in
 * the text form of its type; NULL: none.  max_entries NULL: all.
 */
Datum
lookahead_heap_block_order(PG_FUNCTION_ARGS)
{
	static const Oid columns[] = {INT8OID, INT8OID};
	ReturnSetInfo *set = ResultSet(fcinfo, lengthof(columns), columns);
	ScanKeyData keys[2];
	int			nkeys = 0;
	int64		max_entries = PG_INT64_MAX;
	int64		most = 0;
	Relation	table;
	Relation	index;
	IndexScanDesc scan;
	Oid			user;
	int			sec_context;
	int			guc_level;

	if (PG_ARGISNULL(0))
		return (Datum) 0;
	if (!PG_ARGISNULL(3))
		max_entries = PG_GETARG_INT64(3);
	if (max_entries < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_entries must not be negative")));

	order_open_index(PG_GETARG_OID(0), !PG_ARGISNULL(1) || !PG_ARGISNULL(2),
					 &table, &index);
	GetUserIdAndSecContext(&user, &sec_context);
	SetUserIdAndSecContext(table->rd_rel->relowner,
						   sec_context | SECURITY_RESTRICTED_OPERATION);
	guc_level = NewGUCNestLevel();
	RestrictSearchPath();

	if (!PG_ARGISNULL(1))
		order_make_bound(index, BTGreaterEqualStrategyNumber,
						 PG_GETARG_TEXT_PP(1), &keys[nkeys++]);
	if (!PG_ARGISNULL(2))
		order_make_bound(index, BTLessEqualStrategyNumber,
						 PG_GETARG_TEXT_PP(2), &keys[nkeys++]);

	/* no snapshot of the transaction's: entries are no reads of rows */
	scan = LOOKAHEAD_BEGIN_OWN_SCAN(table, index, SnapshotAny, nkeys);
	index_rescan(scan, keys, nkeys, NULL, 0);
	for (int64 entry = 1; entry <= max_entries; entry++)
	{
		ItemPointer tid = index_getnext_tid(scan, ForwardScanDirection);
		ResultRow	row = {0};

		CHECK_FOR_INTERRUPTS();
		if (tid == NULL)
			break;
		order_check_count(index, entry, &most);
		ResultInt64(&row, entry);
		ResultInt64(&row, ItemPointerGetBlockNumberNoCheck(tid));
		ResultPut(set, &row);
	}
	index_endscan(scan);

	AtEOXact_GUC(false, guc_level);
	SetUserIdAndSecContext(user, sec_context);
	InspectClose(index);
	table_close(table, AccessShareLock);
	return (Datum) 0;
}
