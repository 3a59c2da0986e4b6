/*-------------------------------------------------------------------------
 *
 * btree_keys.c
 *		The keys of a btree scan, and which entries of a page they match; see
 *		btree_keys.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "builtin.h"
#include "catalog/pg_index.h"
#include "index/btree_keys.h"
#include "index/index_page.h"
#include "utils/rel.h"

#define REQUIRED_KEY (SK_BT_REQFWD | SK_BT_REQBKWD)

/* Give a key the strategy and the flags that its column's order asks for. */
static void
btree_keys_prepare_one(Relation index, ScanKey key)
{
	int			options = index->rd_indoption[key->sk_attno - 1];

	key->sk_flags |= options << SK_BT_INDOPTION_SHIFT;
	if (key->sk_flags & SK_SEARCHNULL)
		key->sk_strategy = BTEqualStrategyNumber;
	else if (key->sk_flags & SK_SEARCHNOTNULL)
		key->sk_strategy = (options & INDOPTION_NULLS_FIRST) ?
			BTGreaterStrategyNumber : BTLessStrategyNumber;
	else if (options & INDOPTION_DESC)
		key->sk_strategy = BTCommuteStrategyNumber(key->sk_strategy);
}

Refusal
BTreeColumnRefusal(Relation index, int column)
{
	if (!KeyTypeIsPlain(index->rd_opcintype[column - 1]))
		return REFUSED_INDEX_FALLIBLE;
	return ColumnFunctionsAreServers(index, column) ? NOT_REFUSED :
		REFUSED_INDEX_TYPE;
}

Refusal
BTreeComparisonsRefusal(Relation index, const ScanKeyData *keys, int nkeys)
{
	int			columns = 0;	/* looked at */

	for (int i = 0; i < nkeys; i++)
	{
		const ScanKeyData *members;
		int			nmembers = 1;
		Refusal		refusal;

		/* a scan that skips compares columns without keys, too */
		while (columns < keys[i].sk_attno)
			if ((refusal = BTreeColumnRefusal(index, ++columns)) != NOT_REFUSED)
				return refusal;
		if (!IsBuiltin(keys[i].sk_func.fn_oid))
			return REFUSED_OPERATOR;
		if ((keys[i].sk_flags & SK_ROW_HEADER) == 0)
			continue;
		members = (const ScanKeyData *) DatumGetPointer(keys[i].sk_argument);
		while ((members[nmembers - 1].sk_flags & SK_ROW_END) == 0)
			nmembers++;
		refusal = BTreeComparisonsRefusal(index, members, nmembers);
		if (refusal != NOT_REFUSED)
			return refusal;
	}
	return NOT_REFUSED;
}

/*
 * A key is required if all columns before its own have a key of "=".  No key
 * that is not usual is, nor any behind it that would need it.
 */
void
BTreeKeysPrepare(Relation index, ScanKey keys, int nkeys)
{
	bool		equal = true;

	for (int i = 0; i < nkeys; i++)
		if (KeyIsUsual(&keys[i]))
			btree_keys_prepare_one(index, &keys[i]);
	for (int attno = 1; equal; attno++)
	{
		equal = false;
		for (int i = 0; i < nkeys; i++)
		{
			if (keys[i].sk_attno != attno || !KeyIsUsual(&keys[i]))
				continue;
			if (keys[i].sk_strategy <= BTEqualStrategyNumber)
				keys[i].sk_flags |= SK_BT_REQFWD;
			if (keys[i].sk_strategy >= BTEqualStrategyNumber)
				keys[i].sk_flags |= SK_BT_REQBKWD;
			equal |= keys[i].sk_strategy == BTEqualStrategyNumber;
		}
	}
}

BTreeKeys
BTreeKeysMake(Relation index, ScanDirection dir, ScanKey keys, int nkeys)
{
	BTreeKeys	made = {.index = index, .dir = dir, .nkeys = nkeys,
						.keys = keys, .all_required = true};

	/* keys that do not end a scan may follow those of later columns */
	for (int i = 0; i < nkeys; i++)
	{
		made.natts = Max(made.natts, keys[i].sk_attno);
		made.all_required &= (keys[i].sk_flags & REQUIRED_KEY) != 0;
	}
	return made;
}

bool
BTreeKeysPass(const BTreeKeys *keys, IndexTuple itup, int natts, int tests,
			  bool *ended)
{
	TupleDesc	tupdesc = RelationGetDescr(keys->index);
	bool		forward = ScanDirectionIsForward(keys->dir);

	for (int i = 0; i < keys->nkeys; i++)
	{
		ScanKey		key = &keys->keys[i];
		bool		required = (key->sk_flags & REQUIRED_KEY) != 0;
		bool		ends =
			(key->sk_flags & (forward ? SK_BT_REQFWD : SK_BT_REQBKWD)) != 0;
		bool		pass;
		bool		isnull;
		Datum		value;

		if (key->sk_attno > natts || !KeyIsUsual(key) ||
			(tests & (required ? BTREE_REQUIRED_KEYS : BTREE_OTHER_KEYS)) == 0)
			continue;
		value = index_getattr(itup, key->sk_attno, tupdesc, &isnull);
		if (key->sk_flags & SK_ISNULL)
			pass = (key->sk_flags & SK_SEARCHNULL) ? isnull : !isnull;
		else if (isnull)
		{
			pass = false;

			/* where NULLs are sorted last, nothing follows them */
			if (required &&
				forward == ((key->sk_flags & SK_BT_NULLS_FIRST) == 0))
				ends = true;
		}
		else
			pass = DatumGetBool(FunctionCall2Coll(
				&key->sk_func, key->sk_collation, value, key->sk_argument));
		if (!pass)
		{
			*ended |= ends;
			return false;
		}
	}
	return true;
}

IndexTuple
BTreeMatchesNext(BTreeMatches *matches)
{
	const BTreeKeys *keys = matches->keys;
	int			natts = IndexRelationGetNumberOfAttributes(keys->index);
	bool		forward = ScanDirectionIsForward(keys->dir);

	while (!matches->ended && matches->left-- > 0)
	{
		OffsetNumber offnum = matches->next;
		bool		killed = matches->ignore_killed &&
			ItemIdIsDead(PageGetItemId(matches->page, offnum));
		IndexTuple	itup;

		matches->next += forward ? 1 : -1;

		/* a scan backward asks the first tuple whether to go on, though dead */
		if (killed && (forward || matches->left > 0))
			continue;
		itup = BTreeTupleAt(keys->index, matches->page, offnum,
							matches->tests != 0 ? keys->natts : 0);
		if (itup == NULL || BTreeTupleIsPivot(itup))
		{
			matches->damaged = true;
			return NULL;
		}
		if (BTreeKeysPass(keys, itup, natts, matches->tests, &matches->ended) &&
			!killed)
			return itup;
	}
	return NULL;
}
