/*-------------------------------------------------------------------------
 *
 * toast_private.h
 *		What the files of this room have for each other.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_TOAST_PRIVATE_H
#define PG_LOOKAHEAD_TOAST_PRIVATE_H

#include "access/htup.h"
#include "access/tupdesc.h"
#include "exec/ahead_node.h"
#include "executor/tuptable.h"
#include "lib/ilist.h"
#include "nodes/execnodes.h"
#include "observe/totals.h"
#include "storage/bufpage.h"
#include "utils/resowner.h"

/*
 * column.c: which values of a column will be fetched, by what has been.
 *
 * Pure: it is told what happens, calls nobody, and knows nothing of the server.
 */

typedef struct ToastColumn
{
	uint64		history;		/* of the rows that passed: 1 if fetched */
	int			passed;			/* rows in the history */
	bool		sliced;			/* fetched only in part, lately */
	int32		first_chunk;	/* if so, the chunks that were fetched */
	int32		last_chunk;
} ToastColumn;

/* A value has passed, and was fetched or was not. */
extern void ToastColumnPassed(ToastColumn *column, bool fetched);

/*
 * A value is being fetched: its chunks from "first" to "last", of as many as it
 * has.
 */
extern void ToastColumnFetched(ToastColumn *column, int32 first, int32 last,
							   int32 chunks);

/* Will the next value of the column probably be fetched? */
extern bool ToastColumnIsWanted(const ToastColumn *column);

/*
 * pointers.c: the TOAST pointers of a tuple.
 *
 * A value that was moved out of line leaves a pointer in its row.  The pointer
 * has the OID of the TOAST table, the OID of the value, and its size there, so
 * that it tells which chunks a fetch of the value will read.
 */

/* The most pointers taken from one row. */
#define ROW_POINTERS 32

typedef struct ToastPointer
{
	uint64		turn;			/* of its row: grows from row to row */
	Oid			value;			/* chunk_id */
	int32		chunks;			/* number of chunks, at least 1 */
	Oid			table;			/* the TOAST table */
	AttrNumber	column;
} ToastPointer;

/* Which pointers are looked for. */
typedef struct ToastPointers
{
	TupleDesc	desc;			/* of the main table */
	Oid			toast_table;	/* only those that lead there */
	uint64		turn;			/* is set in each */
	int			most;			/* length of the array; others are left out */
	ToastPointer *array;
} ToastPointers;

/*
 * Write the pointers of a tuple into the array, and return their number.
 *		tuple		its header, which lies on a page or in memory
 *		length		bytes of the tuple, all of which can be read
 * No byte outside of the tuple is read, whatever the tuple holds, and nothing
 * is fetched.
 */
extern int	ToastPointersOf(const ToastPointers *wanted, HeapTupleHeader tuple,
							Size length);

/*
 * Do the same for a tuple on a page that may be visible as far as its hint bits
 * tell.  A page that may be changed meanwhile has to be locked.
 */
extern int	ToastPointersAt(const ToastPointers *wanted, Page page,
							OffsetNumber offset);

/*
 * Write the pointers of a row that a node has returned, to any tables, into an
 * array of ROW_POINTERS, and return their number.
 */
extern int	ToastPointersOfSlot(TupleTableSlot *slot, uint64 turn,
								ToastPointer *pointers);

/*
 * rows_above.c: the rows of a node above scans, of which some are fetched
 * ahead, and their TOAST pointers.
 *
 * A sort returns rows in another order than the scan below it, which has come
 * to its end by then; rows of parallel workers come from scans of other
 * processes, and those of a hash join partly from its table.  The rows that
 * such a node will return next are only known if it returns them earlier than
 * they are asked for.  So they are, where nobody can notice that (early/).
 */

typedef struct RowsAbove RowsAbove;

/* May a node have rows with values that no scan of the query stands on? */
extern bool RowsAboveKnow(PlanState *plan_state);

/*
 * Be ready to fetch the rows of a node, by its own function "fetch", and to
 * note their pointers.
 */
extern RowsAbove *RowsAboveCreate(AheadNode *node, ExecProcNodeMtd fetch);

/*
 * Return the next row of the node.  Rows are fetched ahead until "wanted"
 * pointers are known that RowsAboveNext() has not returned; none if that is 0.
 */
extern TupleTableSlot *RowsAboveFetch(RowsAbove *rows, int wanted);

/*
 * Serve a TOAST table from now on, if a row of the node has this value of it,
 * and rows can be fetched ahead.
 */
extern bool RowsAboveServe(RowsAbove *rows, Oid toast_table, Oid value);

/* Go to the row that has a value, if it is known. */
extern bool RowsAboveGoTo(RowsAbove *rows, Oid value);

/*
 * Return the number of pointers, at most ROW_POINTERS, of the row to which
 * RowsAboveGoTo() has gone, then those of the rows that follow; 0 if no more
 * are known now.
 */
extern int	RowsAboveNext(RowsAbove *rows, ToastPointer *pointers);

/*
 * values_ahead.c: the TOASTed values that one scan will come to, and the
 * reads of their chunks: a source of look-ups (lookup.h).
 *
 * All of it happens while the server fetches a value: ValuesAheadFetch() tells
 * which one.  If the scan stands on a row with that value, the values of the
 * rows that follow are known, and the chunks of those that will probably be
 * fetched, too, are read ahead.
 *
 * The TOAST table and its index are open and locked by the server while it
 * fetches a value, and only then.  They are not looked at at other times.
 */

typedef struct ValuesAhead ValuesAhead;

/*
 * The server fetches chunks of a value, from "first" to "last"; last is
 * PG_INT32_MAX if it fetches all that follow.
 */
typedef struct ToastFetch
{
	Relation	table;			/* the TOAST table, and its index */
	Relation	index;
	Oid			value;
	int32		first;
	int32		last;
} ToastFetch;

/*
 * Create the state for a scan of a table that has this TOAST table; or for a
 * node above, with its rows.
 */
extern ValuesAhead *ValuesAheadCreate(AheadNode *node, Relation toast_table,
									  RowsAbove *above);

/* How many pointers of rows to come are to be known? */
extern int	ValuesAheadWanted(const ValuesAhead *ahead);

/*
 * Will ValuesAheadFetch() return false, whatever is fetched, since the judge
 * only watches, and no block was read since the last call?
 */
extern bool ValuesAheadIsIdle(const ValuesAhead *ahead);

/*
 * The server begins to fetch a value.  Returns false, with nothing done, if the
 * scan does not stand on a row with this value and has not read it ahead.
 * Then the fetch is not of this scan.
 */
extern bool ValuesAheadFetch(ValuesAhead *ahead, const ToastFetch *fetch);

/* The server goes on to the next chunk of that value. */
extern void ValuesAheadNextChunk(ValuesAhead *ahead);

/* The server has done with that value. */
extern void ValuesAheadFetched(ValuesAhead *ahead);

/*
 * No value will be fetched any more: add to the statistics.  Neither fails nor
 * looks at a relation.
 */
extern void ValuesAheadEnd(ValuesAhead *ahead);

/* Why was nothing read ahead? */
extern Refusal ValuesAheadReason(const ValuesAhead *ahead);

/* What was read ahead so far; what is not used yet counts as used. */
extern ToastCounters ValuesAheadCounters(const ValuesAhead *ahead);

/*
 * stand_in.c: A stand-in for a scan of a table that the server makes without
 * the executor, as COPY TO does.
 *
 * The position of such a scan cannot be asked for.  But when the server
 * fetches a TOASTed value for one of its rows, the row's page is in shared
 * buffers, since the scan has it pinned.  So the row is searched there, from
 * the row of the last fetch on.  The stand-in is a sequential scan with as
 * much as coming_rows.c looks at, and is never executed.
 */

typedef struct StandIn StandIn;

/*
 * Create a stand-in for a scan that is about to begin, in the memory of
 * estate's query.  The table stays open, by the scan's own reference, as long
 * as it is used.
 */
extern StandIn *StandInCreate(EState *estate, Relation table);

/* The stand-in as a node of a plan. */
extern ScanState *StandInNode(StandIn *stand_in);

/*
 * Stand on the row that has this value of a TOAST table, if it is found.  Its
 * page is then pinned, until StandInLeave().
 */
extern bool StandInFind(StandIn *stand_in, Oid toast_table, Oid value);

extern void StandInLeave(StandIn *stand_in);

/*
 * fetches.c: the server's fetches of TOASTed values, and the scans that they
 * are made for.
 */

/* A scan of a table with a TOAST table; or a node above scans. */
typedef struct ToastScan
{
	AheadNode	base;
	dlist_node	link;			/* in the list of all scans */
	ResourceOwner owner;		/* of what its query has open and pinned */
	Oid			toast_table;	/* InvalidOid: not known yet */
	ExecProcNodeMtd fetch;		/* the node's own function */
	RowsAbove  *above;			/* if our function stands in for it */
	StandIn    *stand_in;		/* if the executor does not run the scan */
	ValuesAhead *ahead;			/* NULL until the server fetches a value */
} ToastScan;

/* Install what is needed; called once, when the library is loaded. */
extern void ToastFetchesInit(void);

/*
 * May another scan be added?  To be told of fetches, the TOAST table of each
 * has to be opened when the query begins, which takes time and memory.
 */
extern bool ToastFetchesHaveRoom(void);

/*
 * From now on, tell of the values that the server fetches for the rows of a
 * scan; and no longer, which must not fail.
 */
extern void ToastFetchesAdd(ToastScan *scan);
extern void ToastFetchesRemove(ToastScan *scan);

/*
 * Go on to be told of fetches for a scan without a node that is executed,
 * though an invalidation may have ended that; called once a row.
 */
extern void ToastFetchesWatch(const ToastScan *scan);

/*
 * following.c: TOASTed values of the rows that COPY TO writes.
 *
 * COPY of a table, pg_dump's way to read one, scans it without the executor.
 * It is noticed here, and gets a stand-in for its scan (stand_in.c), which is
 * served as other scans are.
 */

/*
 * Serve COPY with the methods of scans, of the struct ToastScan; called once,
 * when the library is loaded.
 */
extern void FollowingInit(const AheadMethods *scan_methods);

#endif							/* PG_LOOKAHEAD_TOAST_PRIVATE_H */
