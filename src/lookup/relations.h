/*-------------------------------------------------------------------------
 *
 * relations.h
 *		Whether what is remembered of relations may still be true, and tables
 *		with their indexes that are opened without waiting.
 *
 * Look-ups keep pointers to the relation cache's entries of an index and of its
 * table.  An entry that nobody has open is dropped or rebuilt when it is
 * invalidated, and then only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_RELATIONS_H
#define PG_LOOKAHEAD_RELATIONS_H

#include "utils/relcache.h"

/* Called once, when the library is loaded. */
extern void RelationChangesInit(void);

/*
 * How often this process has seen an invalidation of the relation, or of one of
 * a few others?  Never falls.  Raises no error.
 */
extern uint64 RelationChanges(Oid relation);

/* A table and its indexes.  All zero: nothing is known. */
typedef struct TableRelations
{
	Oid			oid;			/* of the table; invalid: nothing is known */
	bool		is_partition;	/* found by TableFindPartition() */
	uint64		seen;			/* changes of all, when they were found */
	Relation	rel;
	int			nindexes;
	Oid		   *index_oids;
	Relation   *indexes;
} TableRelations;

/*
 * Has nothing changed since they were found?  Then the pointers are good,
 * though nobody has the relations open, and have counters.  Raises no error.
 */
extern bool TableIsCurrent(const TableRelations *table);

/*
 * Find a table that this transaction has locked for writing, and open it and
 * its indexes; arrays are made in the current memory context.  False if there
 * is none, or if a lock would have to be waited for, be it of a catalog, or if
 * the server has not made the expressions of an index, or what it knows of
 * partitions, in this process.
 *
 * The resource owner lets go of what is open and locked, after false, too.
 */
extern bool TableFind(TableRelations *table, const char *schema,
					  const char *name);

/* Find and open a partition of such a table, which need not be locked. */
extern bool TableFindPartition(TableRelations *table, Oid oid);

/*
 * Open what is current.  False if that cannot be done now; it may no longer be
 * current, since locking notices changes.
 */
extern bool TableOpenAgain(TableRelations *table);

#endif							/* PG_LOOKAHEAD_RELATIONS_H */
