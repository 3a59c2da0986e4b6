/*-------------------------------------------------------------------------
 *
 * routine.c
 *		Copies of access methods' routines with streamed members; see
 *		routine.h.
 *
 * The relation cache keeps a pointer to the routine as long as the index is
 * open, even if the entry is rebuilt meanwhile.  An entry of an index that
 * nobody has open may be dropped by any invalidation; a new one has the stock
 * routine again.  So the server's own functions may come back between any two
 * calls, and a copy must outlast all entries that may point to it: it is never
 * freed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "maintain/routine.h"
#include "utils/rel.h"

/* A kind's routines, all zero until the first index of the kind is replaced. */
typedef struct Routines
{
	bool		made;
	IndexAmRoutine stock;		/* the routine that the handler returns */
	IndexAmRoutine streamed;	/* the copy whose functions look ahead */
} Routines;

static Routines routines[STREAM_USERS];

bool
RoutineReplace(Relation index, StreamUser user,
			   void (*members) (IndexAmRoutine *routine))
{
	Routines   *kind = &routines[user];
	IndexAmRoutine stock;

	if (kind->made && index->rd_indam == &kind->streamed)
		return true;

	/* another extension may have put a routine of its own there */
	LookaheadStockRoutine(index->rd_amhandler, &stock);
	if (memcmp(index->rd_indam, &stock, sizeof(stock)) != 0)
		return false;

	if (!kind->made)
	{
		kind->stock = kind->streamed = stock;
		members(&kind->streamed);
		kind->made = true;
	}
	else if (memcmp(&kind->stock, &stock, sizeof(stock)) != 0)
		return false;			/* a second copy of contrib/bloom's library */

	LookaheadSetRoutine(index, &kind->streamed);
	return true;
}

const IndexAmRoutine *
RoutineStock(StreamUser user)
{
	Assert(routines[user].made);
	return &routines[user].stock;
}
