/*-------------------------------------------------------------------------
 *
 * lookup.h
 *		For keys that are known early, start the reads of the pages that a
 *		look-up of each of them will need.
 *
 * README.md has the words.  How a source uses it:
 *
 *		LookupBegin()		a key is known from now on
 *		LookupAdvance()		do what can be done for it now; for many keys
 *		LookupRead()		start the reads that these have asked for
 *		LookupArrive()		the key's turn has come: the server looks it up
 *		LookupCountBegin(), -End()		around the server's work for it
 *		LookupPass()		that work is over
 *		LookupForget()		or the key's turn will not come
 *
 * A page that is read ahead is counted as read where and when the server comes
 * to it (see uncount.h), and as unused if it does not.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_LOOKUP_H
#define PG_LOOKAHEAD_LOOKUP_H

#include "access/sdir.h"
#include "index/index_lookup.h"
#include "observe/totals.h"
#include "read/page_read.h"

/* The most heap blocks that are read ahead for one key: its first ones. */
#define LOOKUP_MAX_BLOCKS 16

/*
 * For a bitmap scan, which needs all its heap blocks at once, they are read
 * ahead if they are fewer than that, and than reads may be in flight.  Else the
 * scan itself reads as many together, and would wait for those of later keys.
 */
#define LOOKUP_MAX_BITMAP_BLOCKS 64

typedef struct Lookup Lookup;

typedef enum LookupStage
{
	LOOKUP_NEW,					/* nothing has been done for the key */
	LOOKUP_LOOK,				/* its page is to be looked at */
	LOOKUP_READING,				/* its page is being read */
	LOOKUP_ROWS,				/* rows are tested as their pages come */
	LOOKUP_DONE					/* nothing is left to do */
} LookupStage;

/* The rows that a leaf page named, while they are tested. */
typedef struct LookupRows
{
	int			n;
	int			next;			/* the one to be tested next */
	int			passed;			/* number of those before it that passed */
	int			first;			/* the first of these */
	ItemPointerData rows[FLEXIBLE_ARRAY_MEMBER];
} LookupRows;

/* Rows that are ahead hold one each: it is kept small. */
typedef struct LookupKey
{
	PageRead	read;			/* the read of its page, or of a row's */
	union
	{
		LookupRows *rows;		/* at the stage LOOKUP_ROWS */
		ItemPointerData match;	/* at others: the first row that its leaf page
								 * named, or that passed; not set if "blocks"
								 * is 0 */
	};
	IndexPlace	place;			/* the page to look at next */
	uint32		number;			/* of keys that were begun before it */
	uint16		read_at;		/* a bit for each of "places", in scan order:
								 * it was read for the key */
	uint16		reads;			/* number of pages that were read for it */
	uint16		heap_reads;		/* of these, pages of the table and its map */
	uint8		stage;			/* a LookupStage */
	uint8		visited;		/* number of index pages looked at so far */
	uint8		started;		/* reads of one page or several, begun for it */
	uint8		queued;			/* heap blocks that wait for LookupRead() */
	uint8		blocks;			/* heap blocks that its leaf page named */
	uint8		matches;		/* entries that named them, if not tested */
	uint8		places;			/* those of them that the server may fetch */
} LookupKey;

/* What the look-ups of one source share; it is the owner of their reads. */
typedef struct LookupShared
{
	int			max_keys;		/* the most keys that are known early */
	int			max_reads;		/* the most reads in flight */
	int			nlookups;		/* that keys are divided among, roughly */
	bool		tests;			/* rows are tested, where a test is known */
	bool		more;			/* more keys will be begun soon */
	LookupCounters counters;
} LookupShared;

/* Can keys be looked up in an index of this kind? */
extern bool LookupKnowsIndex(Relation index);

/*
 * Create the state for look-ups in an index over a heap, in the caller's memory
 * context.  keys: as they are before the access method has preprocessed them;
 * their arguments are not looked at.  index_only: all-visible heap pages are
 * not needed.  most_blocks: the most heap blocks that one look-up can need; if
 * none, look-ups end at the leaf page, and the heap may be NULL.  Return NULL,
 * and the reason in *refusal, if the keys do not tell which pages are needed.
 */
extern Lookup *LookupCreate(LookupShared *shared, Relation heap,
							Relation index, ScanKey keys, int nkeys,
							ScanDirection direction, bool index_only,
							int most_blocks, Refusal *refusal);

/*
 * From now on, one look-up can need most_blocks heap blocks at most; or, where
 * rows are tested, as many rows that pass.
 */
extern void LookupBound(Lookup *lookup, int most_blocks);

/*
 * Will the row that an index entry names, on a page that is pinned, be asked
 * for?  False if the scan passes over it, and goes on to the next one.
 */
typedef bool (*LookupRowTest) (void *context, Buffer buffer, ItemPointer row);

/*
 * From now on, the heap pages of a key are read one after the other, and their
 * rows are tested, until as many have passed as can be asked for; or one, if
 * one_passes: no other row can.
 */
extern void LookupTestRows(Lookup *lookup, LookupRowTest test, void *context,
						   bool one_passes);

/*
 * A key is known from now on.  Its LookupKey stays where it is until
 * LookupArrive() or LookupForget() has been called for it.
 */
extern void LookupBegin(Lookup *lookup, LookupKey *key);

/* Is there something to do for a key now? */
static inline bool
LookupIsWanted(const LookupKey *key, bool wait)
{
	switch (key->stage)
	{
		case LOOKUP_DONE:
			return false;
		case LOOKUP_ROWS:
			return key->queued == 0 && (wait || PageReadIsDone(&key->read));
		case LOOKUP_READING:
			return wait || PageReadIsDone(&key->read);
		default:
			return true;
	}
}

/*
 * Is a key's page to be waited for?  Not while so few reads are in flight that
 * the source does better to start others.  A page that was left to the kernel
 * has none.
 */
static inline bool
LookupMayWait(const LookupShared *shared, const LookupKey *key)
{
	return key->stage == LOOKUP_READING &&
		(key->read.origin == PAGE_ADVISED ||
		 PageReadsInFlight(shared) > shared->max_reads / 2);
}

/*
 * Is a key waiting for a page above the leaves?  Once all other reads have been
 * started, that is worth waiting for: many keys may need it, and none of their
 * leaf pages is known before.
 */
static inline bool
LookupAwaitsInnerPage(const LookupKey *key)
{
	return key->stage == LOOKUP_READING && key->place.level > 0;
}

/*
 * Do for a key what can be done now; wait: wait for the page that it needs.
 * keys: those of LookupCreate(), with this key's arguments, none of which is
 * NULL; NULL if the key needs no page.
 */
extern void LookupAdvance(Lookup *lookup, LookupKey *key, ScanKey keys,
						  bool wait);

/*
 * A key is done, and its leaf page did not name all that it stands for: look up
 * the rest, which LookupAdvance() is to be given the keys of.
 */
extern void LookupAgain(LookupKey *key);

/*
 * The table and the index have not been locked all the time since they were
 * looked at last, so that they may be shorter.  What is wanted of what is gone
 * is forgotten.
 */
extern void LookupForgetSizes(Lookup *lookup);

/* No key is known early: free what is kept from one key to the next. */
extern void LookupRest(Lookup *lookup);

/* The bytes that a look-up at rest has, roughly. */
extern Size LookupSize(const Lookup *lookup);

/*
 * Start reading what the keys that were advanced have asked for.  Heap blocks
 * that follow each other wait for neighbours, if more keys are to come and
 * their own turn is far.
 */
extern void LookupRead(Lookup *lookup);

/* Are there heap blocks that wait for neighbours? */
extern bool LookupHolds(const Lookup *lookup);

/* Are there reads that had to wait because too many were in flight? */
extern bool LookupIsBehind(const Lookup *lookup);

/*
 * Can a quarter of the reads that may be in flight be started?  wait: if it is
 * seen only then that reads have ended, wait for one of them.
 */
extern bool LookupMayGoOn(const LookupShared *shared, bool wait);

/* Has all been started that is to be read for a key? */
static inline bool
LookupIsStarted(const LookupKey *key)
{
	return key->stage == LOOKUP_DONE && key->queued == 0;
}

/* Nothing more is to be started for a key. */
extern void LookupStop(Lookup *lookup, LookupKey *key);

/* The turn of a key has come; or it will not come. */
extern void LookupArrive(Lookup *lookup, LookupKey *key);
extern void LookupForget(Lookup *lookup, LookupKey *key);

/*
 * The server has done its work for the keys that had arrived.  The pages that
 * were read for them and not used are counted as unused, and their reads are no
 * longer owed.
 */
extern void LookupPass(Lookup *lookup);

/* How many pages would LookupPass() count as unused now? */
extern int	LookupLeftOver(const Lookup *lookup);

/*
 * Call these around the server's work, to count what was read ahead for it.
 * most: that many heap pages of the keys that had arrived, at most, have been
 * used.  Returns the number of those that were.
 */
extern void LookupCountBegin(Lookup *lookup);
extern int	LookupCountEnd(Lookup *lookup, int most);

/*
 * How many heap pages have been read for a key and are used once the server has
 * fetched this number of pages for it, one after the other?
 */
extern int	LookupUsed(const LookupKey *key, int fetched);

#endif							/* PG_LOOKAHEAD_LOOKUP_H */
