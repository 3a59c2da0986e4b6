/*-------------------------------------------------------------------------
 *
 * btree_pilot.h
 *		A second scan that runs ahead of a btree scan.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_BTREE_PILOT_H
#define PG_LOOKAHEAD_BTREE_PILOT_H

#include "access/relscan.h"
#include "access/sdir.h"
#include "scan/btree_leaf.h"

typedef struct BTreePilot BTreePilot;

/*
 * Does it take a pilot to look beyond the current page of a scan?  So it does
 * for arrays, skip arrays and row comparisons.  False where a pilot is no help
 * either: in a parallel scan, whose pages other processes may take, and in a
 * serializable transaction, for which it would take predicate locks.
 */
extern bool BTreeNeedsPilot(IndexScanDesc scan);

/* Create a pilot; its memory comes from mcxt, and stays small while idle. */
extern BTreePilot *BTreePilotCreate(MemoryContext mcxt, int *reads_owed);

/*
 * The next page, after those told of, that holds matches for the scan.
 * "returned" is the number of entries that the scan has returned, which bounds
 * what the pilot may do to catch up with it.  False if the scan ends there, or
 * the pilot does not find where it is.  May raise the errors that the scan
 * would raise when it comes there.
 */
extern bool BTreePilotNext(BTreePilot *pilot, IndexScanDesc scan,
						   ScanDirection dir, uint64 returned,
						   BTreeLeaf *leaf);

/* The scan has moved in a way that the pilot did not foresee. */
extern void BTreePilotReset(BTreePilot *pilot);

extern void BTreePilotDestroy(BTreePilot *pilot);

#endif							/* PG_LOOKAHEAD_BTREE_PILOT_H */
