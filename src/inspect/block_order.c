/*-------------------------------------------------------------------------
 *
 * block_order.c
 *		heap_block_order(): the heap blocks that a scan of a btree would ask
 *		for, in the order in which it would ask.
 *
 * The index is read by the access method itself, as a bitmap scan reads it:
 * without the heap, so nothing is known of visibility.  What comes is what an
 * index scan steps through: every entry that is not marked dead, each TID of a
 * posting list being one, in the order of a scan forward.
 *
 * Rows go to a tuplestore, which keeps work_mem of them in memory and the rest
 * on disk, so that no scan and no pin is open when the function returns.
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
#include "catalog/pg_type_d.h"
#include "compat.h"
#include "funcapi.h"
#include "inspect/inspect.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(lookahead_heap_block_order);

/*
 * Who may read every row of the table may learn of its entries.  A member of
 * pg_stat_scan_tables may for any table, like the pages of any, but without
 * bounds: by these one can search for the values of keys.
 */
static void
check_privileges(Relation index, bool bounded)
{
	Oid			heap = index->rd_index->indrelid;

	if (!bounded && has_privs_of_role(GetUserId(), ROLE_PG_STAT_SCAN_TABLES))
		return;
	if (pg_class_aclcheck(heap, GetUserId(), ACL_SELECT) == ACLCHECK_OK &&
		check_enable_rls(heap, InvalidOid, true) != RLS_ENABLED)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for index \"%s\"",
					RelationGetRelationName(index)),
			 bounded ?
				 errdetail("With bounds, SELECT on its table is required, not limited by row security.") :
				 errdetail("SELECT on its table, not limited by row security, or the privileges of role \"%s\" are required.",
						   "pg_stat_scan_tables")));
}

/* The type of the first column's keys, as its operators take it. */
static Oid
key_type(Relation index)
{
	Oid			type = index->rd_opcintype[0];

	/* an operator class for arrays, enums, ranges or rows */
	if (IsPolymorphicType(type) || type == RECORDOID)
		type = TupleDescAttr(RelationGetDescr(index), 0)->atttypid;
	return type;
}

/* Make a scan key: first column, operator of a strategy, value from text. */
static void
make_bound(Relation index, StrategyNumber strategy, text *bound, ScanKey key)
{
	Oid			opcintype = index->rd_opcintype[0];
	Oid			opno = get_opfamily_member(index->rd_opfamily[0],
											  opcintype, opcintype, strategy);
	Oid			input,
				ioparam;

	if (!OidIsValid(opno))
		elog(ERROR, "missing operator %d(%u,%u) in opfamily %u", strategy,
			 opcintype, opcintype, index->rd_opfamily[0]);
	getTypeInputInfo(key_type(index), &input, &ioparam);
	ScanKeyEntryInitialize(key, 0, 1, strategy, opcintype,
						   index->rd_indcollation[0], get_opcode(opno),
						   OidInputFunctionCall(input, text_to_cstring(bound),
												ioparam, -1));
}

/*
 * A damaged link can lead a scan in circles.  No index has more entries than
 * its pages can hold.
 */
static void
check_count(Relation index, int64 entries, int64 *most)
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
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ScanKeyData keys[2];
	int			nkeys = 0;
	int64		max_entries = PG_INT64_MAX;
	int64		most = 0;
	Oid			table_oid;
	Relation	table = NULL;
	Relation	index;
	IndexScanDesc scan;

	InitMaterializedSRF(fcinfo, 0);
	if (PG_ARGISNULL(0))
		return (Datum) 0;
	if (!PG_ARGISNULL(3))
		max_entries = PG_GETARG_INT64(3);
	if (max_entries < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_entries must not be negative")));

	/* the table is locked first, as everybody does */
	table_oid = IndexGetRelation(PG_GETARG_OID(0), true);
	if (OidIsValid(table_oid))
		table = table_open(table_oid, AccessShareLock);
	index = InspectOpen(PG_GETARG_OID(0));
	InspectCheckIndex(index, BTREE_AM_OID, "btree", "indexes");
	check_privileges(index, !PG_ARGISNULL(1) || !PG_ARGISNULL(2));
	if (!PG_ARGISNULL(1))
		make_bound(index, BTGreaterEqualStrategyNumber, PG_GETARG_TEXT_PP(1),
				   &keys[nkeys++]);
	if (!PG_ARGISNULL(2))
		make_bound(index, BTLessEqualStrategyNumber, PG_GETARG_TEXT_PP(2),
				   &keys[nkeys++]);

	/* no snapshot of the transaction's: entries are no reads of rows */
	scan = LOOKAHEAD_BEGIN_OWN_SCAN(table, index, SnapshotAny, nkeys);
	index_rescan(scan, keys, nkeys, NULL, 0);
	for (int64 entry = 1; entry <= max_entries; entry++)
	{
		ItemPointer tid = index_getnext_tid(scan, ForwardScanDirection);
		Datum		values[2];
		bool		nulls[2] = {false, false};

		CHECK_FOR_INTERRUPTS();
		if (tid == NULL)
			break;
		check_count(index, entry, &most);
		values[0] = Int64GetDatum(entry);
		values[1] = Int64GetDatum(
			(int64) ItemPointerGetBlockNumberNoCheck(tid));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values,
							 nulls);
	}
	index_endscan(scan);
	InspectClose(index);
	table_close(table, AccessShareLock);
	return (Datum) 0;
}
