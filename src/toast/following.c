/*-------------------------------------------------------------------------
 *
 * following.c
 *		TOASTed values of the rows that COPY TO writes; see toast_private.h.
 *
 * The hook of utility statements tells that COPY begins, and that of permission
 * checks which table it has found and locked.  So no name is looked up twice,
 * and the server's errors come first.
 *
 * An invalidation may take our routine away from the TOAST table's index (see
 * fetches.c).  It is replaced anew when the next row goes to the client: a
 * message of COPY is the only thing in which the server calls through a pointer
 * once a row.  A COPY to a file has none, and goes on without look-ahead then.
 *
 * Invariants:
 * - Nothing leads to a COPY that has ended, with an error or without.
 * - A message is passed on first.  Only messages with rows of a COPY are
 *	 followed by anything else: others may be sent at moments when nothing may
 *	 be looked up.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

/*
 * libpq.h includes headers of OpenSSL and Kerberos if the server uses them,
 * which need not be installed.  Nothing that depends on them is used here.
 */
#undef ENABLE_GSS
#undef USE_OPENSSL

#include "compat.h"
#include "enabled.h"
#include "executor/executor.h"
#include "libpq/libpq.h"
#include "libpq/protocol.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "toast/toast.h"
#include "toast/toast_private.h"
#include "utils/rel.h"

/* A COPY TO that is being executed. */
typedef struct Copy
{
	bool		to_client;
	MemoryContext mcxt;			/* lives longer than the COPY */
	AheadQuery *query;			/* NULL: it is not served */
	ToastScan  *scan;
	Relation	table;			/* open, if it is served */
	struct Copy *outer;
} Copy;

static const AheadMethods *methods;

/* The innermost COPY that is executed, and one whose table is not known yet. */
static Copy *innermost = NULL;
static Copy *starting = NULL;

static ProcessUtility_hook_type prev_ProcessUtility = NULL;
static ExecutorCheckPerms_hook_type prev_ExecutorCheckPerms = NULL;

/* The functions that send messages, and those that are called by ours. */
static PQcommMethods senders;
static const PQcommMethods *senders_before = NULL;
static bool senders_are_ours = false;

/* The putmessage function, while a COPY to the client is served. */
static int
following_putmessage(char type, const char *data, size_t length)
{
	int			result = senders_before->putmessage(type, data, length);

	if (type == PqMsg_CopyData && innermost != NULL && innermost->to_client &&
		innermost->scan != NULL)
		ToastFetchesWatch(innermost->scan);
	return result;
}

/*
 * Have our function called for each row that goes to the client.  It may have
 * remained there, below functions of other code, since an earlier COPY.
 */
static void
following_watch_messages(void)
{
	if (senders_are_ours)
		return;
	senders_are_ours = true;
	senders_before = PqCommMethods;
	senders = *senders_before;
	senders.putmessage = following_putmessage;
	PqCommMethods = &senders;
}

/*
 * Serve a COPY of a table, if there is something to win.  It has locked the
 * table, and has it open until it ends; so do we.
 */
static bool
following_serve_copy(Copy *copy, Relation table)
{
	Refusal		refusal = NOT_REFUSED;
	MemoryContext old;
	EState	   *estate;
	StandIn    *stand_in;
	PlanState  *plan_state;

	if (!OidIsValid(table->rd_rel->reltoastrelid) ||
		!CheckRelationLockedByMe(table, AccessShareLock, true))
		return false;
	old = MemoryContextSwitchTo(copy->mcxt);
	estate = CreateExecutorState();
	stand_in = StandInCreate(estate, table);
	plan_state = &StandInNode(stand_in)->ps;
	if (methods->serves(plan_state, &refusal) && refusal == NOT_REFUSED)
	{
		copy->query = AheadQueryMake(estate);
		copy->scan =
			(ToastScan *) AheadNodeAdd(copy->query, plan_state, methods);
		copy->scan->stand_in = stand_in;
		copy->table = table;
		methods->begin(&copy->scan->base);
		if (copy->to_client)
			following_watch_messages();
	}
	else
		FreeExecutorState(estate);
	MemoryContextSwitchTo(old);
	return copy->table != NULL;
}

/* COPY checks what it is permitted, after it has locked its table. */
static bool
following_ExecutorCheckPerms(List *range_table, List *permissions,
							 bool raise_error)
{
	Copy	   *copy = starting;

	starting = NULL;
	if (prev_ExecutorCheckPerms != NULL &&
		!prev_ExecutorCheckPerms(range_table, permissions, raise_error))
		return false;
	if (copy != NULL && list_length(range_table) == 1)
	{
		RangeTblEntry *entry = linitial_node(RangeTblEntry, range_table);
		Relation	table = NULL;

		if (entry->rtekind == RTE_RELATION &&
			entry->relkind == RELKIND_RELATION)
			table = RelationIdGetRelation(entry->relid);
		if (table != NULL && !following_serve_copy(copy, table))
			RelationClose(table);
	}
	return true;
}

/* Execute a statement, which is a COPY of a table that may be served. */
static void
following_copy_table(PlannedStmt *pstmt, const char *query_string,
					 bool read_only_tree,
					 ProcessUtilityContext context, ParamListInfo params,
					 QueryEnvironment *environment, DestReceiver *dest,
					 QueryCompletion *completion)
{
	const CopyStmt *statement = (CopyStmt *) pstmt->utilityStmt;
	Copy		copy = {.to_client = statement->filename == NULL,
						.mcxt = CurrentMemoryContext,
						.outer = innermost};

	innermost = starting = &copy;
	PG_TRY();
	{
		prev_ProcessUtility(pstmt, query_string, read_only_tree, context,
							params, environment, dest, completion);
	}
	PG_FINALLY();
	{
		innermost = copy.outer;
		starting = NULL;
		if (innermost == NULL && PqCommMethods == &senders)
		{
			PqCommMethods = senders_before;
			senders_are_ours = false;
		}
		if (copy.query != NULL)
			AheadQueryEnd(copy.query);
	}
	PG_END_TRY();
	if (copy.query == NULL)
		return;
	AheadQueryWait(copy.query);
	FreeExecutorState(copy.query->estate);
	RelationClose(copy.table);
}

static void
following_ProcessUtility(PlannedStmt *pstmt, const char *query_string,
						 bool read_only_tree, ProcessUtilityContext context,
						 ParamListInfo params, QueryEnvironment *environment,
						 DestReceiver *dest, QueryCompletion *completion)
{
	const Node *statement = pstmt->utilityStmt;

	if (lookahead_enabled && lookahead_toast && IsA(statement, CopyStmt) &&
		!((const CopyStmt *) statement)->is_from &&
		((const CopyStmt *) statement)->relation != NULL)
		following_copy_table(pstmt, query_string, read_only_tree, context,
							 params,
							 environment, dest, completion);
	else
		prev_ProcessUtility(pstmt, query_string, read_only_tree, context,
							params, environment, dest, completion);
}

void
FollowingInit(const AheadMethods *scan_methods)
{
	methods = scan_methods;
	INSTALL_HOOK(ProcessUtility, following_ProcessUtility);
	prev_ExecutorCheckPerms = ExecutorCheckPerms_hook;
	ExecutorCheckPerms_hook = following_ExecutorCheckPerms;
}
