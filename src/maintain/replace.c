/*-------------------------------------------------------------------------
 *
 * replace.c
 *		Which indexes can be read through streams; see replace.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "index/bloom_page.h"
#include "maintain/members.h"
#include "maintain/replace.h"
#include "maintain/routine.h"
#include "utils/fmgroids.h"

bool
ReplaceKnows(Oid handler, StreamUser *user)
{
	if (handler == F_HASHHANDLER)
		*user = STREAM_USER_HASH;
	else if (handler == F_GINHANDLER)
		*user = STREAM_USER_GIN;
	else if (handler >= FirstNormalObjectId && BloomIsHandler(handler))
		*user = STREAM_USER_BLOOM;
	else
		return false;
	return true;
}

bool
ReplaceRoutine(Relation index, StreamUser user)
{
	static void (*const members[STREAM_USERS]) (IndexAmRoutine *routine) = {
		[STREAM_USER_HASH] = HashReplaceMembers,
		[STREAM_USER_GIN] = GinReplaceMembers,
		[STREAM_USER_BLOOM] = BloomReplaceMembers,
	};

	return RoutineReplace(index, user, members[user]);
}
