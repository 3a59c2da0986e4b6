/*-------------------------------------------------------------------------
 *
 * btree_keys.h
 *		The keys of a btree scan, and which entries of a page they match.
 *
 * Keys are as the access method has preprocessed them: their strategies and
 * flags follow the order of the index, and a required key ends a scan of some
 * direction when it fails.  Keys that only the access method itself can test
 * are passed over: see KeyIsUsual().
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_BTREE_KEYS_H
#define PG_LOOKAHEAD_BTREE_KEYS_H

#include "access/nbtree.h"
#include "access/relscan.h"
#include "access/sdir.h"
#include "catalog/pg_am_d.h"
#include "observe/refusal.h"
#include "utils/rel.h"

/* Which keys are to be tested. */
#define BTREE_REQUIRED_KEYS 1	/* those that end a scan of some direction */
#define BTREE_OTHER_KEYS 2
#define BTREE_ALL_KEYS (BTREE_REQUIRED_KEYS | BTREE_OTHER_KEYS)

typedef struct BTreeKeys
{
	Relation	index;
	ScanDirection dir;
	int			nkeys;
	ScanKey		keys;
	int			natts;			/* they test no attributes beyond these */
	bool		all_required;
} BTreeKeys;

/* The entries of a leaf page that match, one after the other. */
typedef struct BTreeMatches
{
	const BTreeKeys *keys;
	Page		page;
	OffsetNumber next;			/* the entry to look at next */
	int			left;			/* number of entries to look at */
	int			tests;			/* which keys are tested, if any */
	bool		ignore_killed;	/* pass over entries that are marked dead */
	bool		ended;			/* no entry after these can match */
	bool		damaged;
} BTreeMatches;

/*
 * Does a scan ask for one key of a unique index?  Then there is no second row
 * to look ahead to.  The keys are as the executor has made them.
 */
static inline bool
BTreeKeysAreUnique(Relation index, const ScanKeyData *keys, int nkeys)
{
	int			columns;

	if (index->rd_rel->relam != BTREE_AM_OID ||
		!index->rd_index->indisunique || !index->rd_index->indimmediate)
		return false;
	columns = IndexRelationGetNumberOfKeyAttributes(index);
	if (nkeys < columns)
		return false;

	/* the keys come in the order of the columns */
	for (int i = 0; i < columns; i++)
		if (keys[i].sk_attno != i + 1 ||
			keys[i].sk_strategy != BTEqualStrategyNumber ||
			(keys[i].sk_flags & (SK_SEARCHARRAY | SK_ROW_HEADER)) != 0)
			return false;
	return true;
}

/*
 * Why can't the values of a column (from 1 on) be compared early, for entries
 * to which the scan may never come?  Not if a function of an extension or of a
 * user would be called, or if a comparison may fail.
 */
extern Refusal BTreeColumnRefusal(Relation index, int column);

/*
 * Why can't keys, and the columns up to theirs?  The keys may be as the
 * executor has made them.
 */
extern Refusal BTreeComparisonsRefusal(Relation index, const ScanKeyData *keys,
									   int nkeys);

/*
 * Bring keys into the form that the access method would give them, but for
 * their arguments, which are not looked at.
 */
extern void BTreeKeysPrepare(Relation index, ScanKey keys, int nkeys);

/* Describe keys; they are not copied. */
extern BTreeKeys BTreeKeysMake(Relation index, ScanDirection dir, ScanKey keys,
							   int nkeys);

/*
 * Does a tuple of "natts" attributes pass the keys?  tests: which of them.  Sets
 * *ended if one fails that ends the scan.  Keys on attributes that were
 * truncated away pass.  The first keys->natts attributes must have been checked
 * by BTreeTupleAt().
 */
extern bool BTreeKeysPass(const BTreeKeys *keys, IndexTuple itup, int natts,
						  int tests, bool *ended);

/*
 * The next match, or NULL if there is none, or the page is damaged.  Only to be
 * called while the page is locked.
 */
extern IndexTuple BTreeMatchesNext(BTreeMatches *matches);

#endif							/* PG_LOOKAHEAD_BTREE_KEYS_H */
