/*-------------------------------------------------------------------------
 *
 * refusal.h
 *		Why look-ahead leaves something to the server, or read nothing ahead.
 *
 * Each reason is a value of Refusal, and has one sentence, which EXPLAIN
 * prints.  REFUSALS() is the list of both.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_REFUSAL_H
#define PG_LOOKAHEAD_REFUSAL_H

/* R(name, sentence): the value REFUSED_name, and its sentence. */
#define REFUSALS(R) \
	/* settings and the server */ \
	R(DISABLED, "pg_lookahead.enabled is off") \
	R(NO_DISTANCE, "pg_lookahead.max_distance is 0") \
	R(NO_CONCURRENCY, "effective_io_concurrency is 0") \
	R(DIRECT_AND_SYNCHRONOUS, "reads are synchronous and direct") \
	R(SERVER_PREFETCHES, "left to the server's own prefetching") \
	R(BUILT_FOR_PREFETCH, "built with SERVER_PREFETCH=1") \
	R(SERIALIZABLE, "transaction is serializable") \
	R(OTHER_EXTENSION, "executed by another extension") \
	/* tables, indexes and keys */ \
	R(NO_HEAP, "not a heap table") \
	R(CATALOG, "system catalog") \
	R(INDEX_METHOD, "index access method of an extension") \
	R(INDEX_TYPE, "index on a type of an extension") \
	R(INDEX_FALLIBLE, "an index is on a type whose comparisons may fail") \
	R(OPERATOR, "operator of an extension") \
	R(NO_BOUND, "no key bounds the first column of its index") \
	R(KEY_OF_SEVERAL, "a key of the inner scan has several values") \
	/* index scans */ \
	R(ONE_ROW, "at most one row") \
	R(ORDERED_BY_DISTANCE, "ordered by distance") \
	R(TEMPORARY_SCANS, "too many scans of temporary tables") \
	/* nested loops: the inner side */ \
	R(NO_INNER_SCAN, "no index scan on the inner side") \
	R(INNER_METHOD, "the inner index is neither btree nor hash") \
	R(INNER_KEY, "a key of the inner scan is not a plain value") \
	R(COMPUTED_KEY, "a key of the inner scan is computed by the inner side") \
	R(INNER_CONDITION, "a condition of the inner scan is not a plain value") \
	R(NO_OUTER_KEY, "the inner scan has no key of the outer row") \
	R(SCAN_OF_OTHERS, "the inner scan already looks ahead for another node") \
	R(PARTITION_KEY, "a partition is not selected by plain values") \
	/* nested loops: the outer side */ \
	R(ROWS_UNCERTAIN, "the query may not ask for all outer rows") \
	R(OUTER_LOCKS, "outer side locks rows") \
	R(OUTER_CHANGES, "outer side changes data") \
	R(OUTER_IS_FOREIGN, "outer side reads a foreign table") \
	R(OUTER_IS_CUSTOM, "outer side is executed by an extension") \
	R(OUTER_IS_RECURSIVE, "outer side is recursive") \
	R(OUTER_READS_CHANGED, "outer side reads what the statement changes") \
	R(OUTER_KIND, "outer side cannot be executed early") \
	R(OUTER_EFFECTS, "outer side may have side effects") \
	/* correlated subplans */ \
	R(SUBPLAN_VALUE, "a subplan takes a value that is not plain") \
	R(SUBPLAN_PLACE, "a subplan is executed where rows are not known early") \
	R(BACKWARD, "rows may be asked for again") \
	/* statements that write rows */ \
	R(PARTITIONED, "partitioned table") \
	R(TRIGGERS, "triggers run before each row") \
	R(WRITES_ONE_ROW, "one row") \
	R(WRITES_ONE_INDEX, "the table has fewer than two indexes") \
	R(WRITES_NO_KEY, "no indexed column is changed") \
	R(WRITES_PLAN, "the plan does not tell which rows it comes to next") \
	R(WRITES_VALUES, "a new value or a condition is not plain") \
	R(NOT_ALL_ROWS, "the query may not ask for all rows") \
	R(NO_INDEXES, "the table has no indexes") \
	R(WRITTEN_METHOD, "an index is neither btree nor hash") \
	R(INDEX_EXPRESSION, "an expression of an index is not a plain value") \
	R(INDEX_UNFINISHED, "an index is being created") \
	R(INDEX_WHOLE_ROW, "an index depends on the whole row") \
	R(INDEX_GENERATED, "an index depends on a generated column") \
	/* it was served, and read nothing ahead */ \
	R(NOTHING_TO_READ, "nothing could be read ahead") \
	R(NOTHING_TO_WAIT_FOR, "nothing to wait for") \
	R(FAST_READS, "reads are fast") \
	R(NOT_FASTER, "it was not faster")

#define REFUSAL_VALUE(name, sentence) REFUSED_##name,

typedef enum Refusal
{
	NOT_REFUSED,
	REFUSALS(REFUSAL_VALUE)
} Refusal;

#undef REFUSAL_VALUE

/* The sentence of a reason; NULL for NOT_REFUSED. */
extern const char *RefusalSentence(Refusal refusal);

#endif							/* PG_LOOKAHEAD_REFUSAL_H */
