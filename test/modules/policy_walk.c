/*-------------------------------------------------------------------------
 *
 * policy_walk.c
 *		Random walks through the policies, without a server.
 *
 * Usage: policy_walk leaf SEED EVENTS
 *
 * It is a simulated scan or nested loop: storage has phases (cached, fast,
 * slow), and as much is ahead as the distance says.  The policy is told what it
 * would be told.  After each event its properties are tested, and after each
 * thing that it is told, that its mode has gone a way that the table at the
 * policy's head has.  The first property that does not hold is printed, and
 * ends the program with status 1.
 *
 *-------------------------------------------------------------------------
 */
#include "c.h"

#include "scan/leaf_policy.h"

/* that of the C library, not of the server */
#undef printf

/* what the policy promises, with its own constants written out again */
#define LEAST_DISTANCE 4

typedef enum Storage
{
	CACHED,						/* in shared buffers */
	FAST,						/* in the kernel's page cache */
	SLOW,
	STORAGES
} Storage;

static uint64 random_state;
static uint64 seed;
static uint64 event = 0;

static uint32
random_below(uint32 bound)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32) (random_state >> 33) % bound;
}

static void
expect_of(int mode, int distance, bool holds, const char *property)
{
	if (holds)
		return;
	printf("seed " UINT64_FORMAT ", event " UINT64_FORMAT ": %s"
		   " (mode %d, distance %d)\n",
		   seed, event, property, mode, distance);
	exit(1);
}

#define expect(holds, policy, property) \
	expect_of((int) (policy)->mode, (policy)->distance, holds, property)

/*
 * Tell the policy something, which may change its mode only as "ways" has it:
 * WT is from WATCH to TIME (or TOGETHER), and so on.
 */
#define TELL(policy, ways, call) \
	do \
	{ \
		char		way[3] = {"WTAE"[(policy)->mode], 0, 0}; \
		\
		call; \
		way[1] = "WTAE"[(policy)->mode]; \
		expect(way[0] == way[1] || strstr(ways, way) != NULL, policy, \
			   "there is such a transition"); \
	} while (0)

static Storage
random_storage(void)
{
	return random_below(STORAGES);
}

/* How long a read takes, where one that takes "slow_us" is slow. */
static double
random_read_us(Storage storage, int slow_us)
{
	return storage == SLOW ? slow_us + random_below(1000) :
		1 + random_below(slow_us - 1);
}

/*
 * Leaf pages.
 */
#define SLOW_LEAF_US 40
#define MOST_LEAF_HITS 32
#define MOST_LEAF_GRANT 256
#define MOST_GRANT_IN_ORDER 64
#define LEAST_LEAF_REST 16
#define MOST_LEAF_BEHIND (256 + 2 * 32 + 2)

typedef struct LeafWalk
{
	LeafPolicy	policy;
	Storage		storage;
	bool		forced;
	bool		direct;
	bool		runs_to_end;

	/* since something else happened */
	int			visited;		/* leaf pages, since the scan was begun */
	int			hits_ahead;		/* in AHEAD: pages found in a row */
	int			reads_unprobed; /* in AHEAD: reads since the last probe */
	int			slow_behind;	/* slow reads in a row, not ahead */
	int			rest;			/* reads that are not to be looked at */
} LeafWalk;

static void
check_leaf(const LeafWalk *walk)
{
	const LeafPolicy *policy = &walk->policy;

	expect(!walk->forced || policy->mode == LEAF_AHEAD, policy,
		   "what is forced is done");
	if (policy->mode == LEAF_AHEAD)
	{
		expect(policy->distance >= LEAST_DISTANCE, policy,
			   "the distance never hovers at 1 or 2");
		expect(walk->runs_to_end ||
			   policy->distance <= Max(LEAST_DISTANCE, 2 * walk->visited),
			   policy, "the distance is earned");
		expect(walk->forced || walk->hits_ahead < MOST_LEAF_HITS, policy,
			   "never ahead while everything hits");
		expect(walk->forced || walk->direct || policy->probe ||
			   walk->reads_unprobed <
			   (policy->in_order ? MOST_GRANT_IN_ORDER : MOST_LEAF_GRANT),
			   policy, "reads are timed in time");
	}
	expect(policy->mode == LEAF_AHEAD || !policy->probe, policy,
		   "probes are of AHEAD");
	expect(!policy->probe || !(walk->forced || walk->direct), policy,
		   "there is nothing to probe");
	expect(walk->rest <= 0 || policy->mode == LEAF_WATCH, policy,
		   "the clock rests after fast reads");
	expect(walk->slow_behind <= MOST_LEAF_BEHIND, policy,
		   "never behind while reads are slow");
}

/* The scan comes to a leaf page, and looks ahead if it may. */
static void
visit_leaf(LeafWalk *walk)
{
	LeafPolicy *policy = &walk->policy;
	LeafMode	before = policy->mode;
	bool		reads = walk->storage != CACHED;
	bool		timed = LeafPolicyTimes(policy);
	double		read_us = random_read_us(walk->storage, SLOW_LEAF_US);

	if (policy->probe && reads)
	{
		TELL(policy, "AW", LeafPolicyProbed(policy, read_us));
		expect((read_us < SLOW_LEAF_US) == (policy->mode == LEAF_WATCH),
			   policy, "never ahead while probes are fast");
		if (policy->mode == LEAF_WATCH)
			walk->rest = LEAST_LEAF_REST;
		walk->reads_unprobed = 0;
		return;
	}
	walk->visited++;
	TELL(policy, "WT TA TW",
		 LeafPolicyPage(policy, !reads ? 0 : timed ? read_us : -1));
	walk->rest -= reads;
	expect(before != LEAF_TIME || policy->mode != LEAF_AHEAD ||
		   policy->in_order || (reads && read_us >= SLOW_LEAF_US), policy,
		   "only slow reads begin it");
	if (before == LEAF_TIME && policy->mode == LEAF_WATCH && reads)
		walk->rest = LEAST_LEAF_REST;
	if (policy->mode == LEAF_TIME && walk->storage == SLOW &&
		random_below(64) == 0)
	{
		TELL(policy, "TA", LeafPolicyIsSlow(policy));
		expect(policy->in_order || policy->mode == LEAF_AHEAD, policy,
			   "what others have seen is believed");
	}
	if (policy->mode != LEAF_AHEAD)
	{
		walk->slow_behind =
			walk->storage == SLOW ? walk->slow_behind + 1 : 0;
		return;
	}
	if (before != LEAF_AHEAD)
		walk->hits_ahead = walk->reads_unprobed = 0;
	walk->slow_behind = 0;
	before = policy->mode;
	if (random_below(8) == 0)
	{
		TELL(policy, "AT",
			 LeafPolicyOrder(policy, random_below(4) == 0));
		expect(!policy->in_order || !(walk->direct || walk->forced), policy,
			   "there is no kernel that reads ahead");
		if (policy->mode != LEAF_AHEAD)
			return;
	}
	if (policy->probe)
		return;
	if (reads)
		walk->reads_unprobed++;
	walk->hits_ahead = reads ? 0 : walk->hits_ahead + 1;
	TELL(policy, "AW", LeafPolicyStarted(policy, reads, !reads, reads));
	if (policy->mode == LEAF_WATCH && !reads)
		walk->rest = LEAST_LEAF_REST;
}

static void
begin_leaf(LeafWalk *walk)
{
	*walk = (LeafWalk) {
		.storage = random_storage(),
		.forced = random_below(16) == 0,
		.direct = random_below(4) == 0,
		.runs_to_end = random_below(4) == 0,
	};
	LeafPolicyInit(&walk->policy, walk->forced, walk->direct,
				   walk->runs_to_end);
}

static void
walk_leaf(uint64 events)
{
	LeafWalk	walk;

	begin_leaf(&walk);
	for (event = 0; event < events; event++)
	{
		uint32		what = random_below(10000);

		if (what < 2)
			begin_leaf(&walk);
		else if (what < 12)
			walk.storage = random_storage();
		else if (what < 22)
		{
			walk.visited = 0;
			TELL(&walk.policy, "", LeafPolicyBegunAgain(&walk.policy));
		}
		else
			visit_leaf(&walk);
		check_leaf(&walk);
	}
}

int
main(int argc, char **argv)
{
	uint64		events;

	if (argc != 4)
		return 2;
	seed = strtoull(argv[2], NULL, 10);
	events = strtoull(argv[3], NULL, 10);
	random_state = seed * UINT64CONST(0x9E3779B97F4A7C15) + 1;
	if (strcmp(argv[1], "leaf") == 0)
		walk_leaf(events);
	else
		return 2;
	return 0;
}
