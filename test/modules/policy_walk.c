/*-------------------------------------------------------------------------
 *
 * policy_walk.c
 *		Random walks through the policies, without a server.
 *
 * Usage: policy_walk scan|join|leaf SEED EVENTS
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

#include "join/policy.h"
#include "scan/leaf_policy.h"
#include "scan/policy.h"

/* that of the C library, not of the server */
#undef printf

/* what the policy promises, with its own constants written out again */
#define LEAST_DISTANCE 4
#define MOST_HITS 256
#define MOST_IDLE_ENTRIES 4096
#define MOST_SLOW_READS 64
#define MOST_REST 1024
#define MOST_LONE_PAGES 8
#define MOST_FAST_PROBES 2
#define FIRST_PROBE 16
#define MOST_READS_WITHOUT_PROBE 4096
#define MOST_BEHIND \
	(MOST_SLOW_READS + MOST_REST + MOST_LONE_PAGES + 2 + \
	 MOST_SLOW_READS / MOST_LONE_PAGES * 2)

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

/* A scan, and what is counted of it to judge the policy. */
typedef struct Walk
{
	Policy		policy;
	Storage		storage;
	int			capacity;
	int			held;			/* blocks in the window */
	bool		told_held;		/* the policy was told of that just now */
	int			rows_a_page;
	bool		more_wanted;
	bool		forced;
	bool		forbidden;

	/* since something else happened */
	int			hits_ahead;		/* in AHEAD: pages that were hits */
	int			idle_ahead;		/* in AHEAD or ENDING: entries without a read */
	int			reads_unprobed; /* in AHEAD: reads since the last probe */
	int			probe_due;		/* when they are as many */
	int			fast_probes;	/* in AHEAD: in a row */
	int			pages_ahead;	/* in AHEAD or ENDING, since the last round */
	int			slow_behind;	/* slow reads in a row, not ahead */
	int			fast_in_row;	/* timed reads */
	bool		timed;			/* the last fetch read, too */
} Walk;

static bool
is_ahead(const Walk *walk)
{
	return walk->policy.mode >= POLICY_AHEAD;
}

static void
check(Walk *walk)
{
	const Policy *policy = &walk->policy;
	int			least = Min(LEAST_DISTANCE, walk->capacity);

	expect(policy->mode >= POLICY_WATCH && policy->mode <= POLICY_ENDING,
		   policy, "there is such a mode");
	expect(!walk->forbidden || !is_ahead(walk), policy,
		   "what is forbidden is not done");
	if (policy->mode == POLICY_AHEAD && walk->pages_ahead > 0)
	{
		expect(policy->distance >= least, policy,
			   "the distance never hovers at 1 or 2");
		expect(policy->distance <= walk->capacity, policy,
			   "the distance fits the window");
		expect(policy->distance <= LEAST_DISTANCE + 2 * (int) policy->blocks,
			   policy, "the distance is earned");
	}
	if (walk->forced)
	{
		expect(!PolicyWantsProbe(policy), policy, "what is forced is not probed");
		return;
	}
	expect(policy->mode != POLICY_AHEAD ||
		   walk->fast_probes <= MOST_FAST_PROBES, policy,
		   "never ahead while probes are fast");
	expect(policy->mode != POLICY_AHEAD || PolicyWantsProbe(policy) ||
		   walk->reads_unprobed < walk->probe_due, policy,
		   "probes are due in time");
	expect(policy->mode >= POLICY_AHEAD ||
		   walk->fast_probes <= MOST_FAST_PROBES || !PolicyTimesReads(policy),
		   policy, "the clock rests after fast reads");
	expect(policy->mode != POLICY_AHEAD || walk->hits_ahead <= MOST_HITS,
		   policy, "never ahead while everything hits");
	expect(policy->mode != POLICY_AHEAD ||
		   walk->idle_ahead <= MOST_IDLE_ENTRIES + walk->rows_a_page,
		   policy, "never ahead while nothing is read");
	expect(policy->mode != POLICY_ENDING || walk->held > 0 ||
		   !walk->told_held, policy,
		   "an empty window is left");
	expect(walk->slow_behind <= MOST_BEHIND, policy,
		   "never behind while reads are slow");
}

/* The mode may have changed. */
static void
note_mode(Walk *walk, PolicyMode before)
{
	if (is_ahead(walk) && before < POLICY_AHEAD)
	{
		walk->hits_ahead = walk->idle_ahead = walk->pages_ahead = 0;
		walk->slow_behind = walk->fast_in_row = 0;
		walk->reads_unprobed = walk->fast_probes = 0;
		walk->probe_due = FIRST_PROBE;
		walk->held = 0;
	}
	if (!is_ahead(walk) && before >= POLICY_AHEAD)
	{
		walk->held = 0;
		walk->timed = false;
	}
}

/* The scan comes to another page, and returns the rows of it. */
static void
visit_page(Walk *walk)
{
	Policy	   *policy = &walk->policy;
	bool		reads = walk->storage != CACHED;
	bool		fetches;
	double		read_us = random_read_us(walk->storage, 25);

	if (is_ahead(walk))
	{
		PolicySetWindow(policy, walk->capacity, 0);
		if (policy->mode == POLICY_AHEAD)
			walk->held = Max(walk->held, policy->distance);
		walk->held = Max(0, walk->held - 1);
		walk->pages_ahead++;
		walk->hits_ahead = reads ? 0 : walk->hits_ahead + 1;
		walk->idle_ahead = reads ? 0 : walk->idle_ahead;
		if (reads && PolicyWantsProbe(policy) && random_below(4) == 0)
		{
			walk->fast_probes = read_us < 25 ? walk->fast_probes + 1 : 0;
			walk->reads_unprobed = 0;
			if (read_us >= 25)
				walk->probe_due =
					Min(walk->probe_due * 2, MOST_READS_WITHOUT_PROBE);
			TELL(policy, "AE", PolicyBlock(policy, true, read_us));
		}
		else
		{
			walk->reads_unprobed += reads;
			TELL(policy, "AE", PolicyBlock(policy, reads, -1));
		}
		TELL(policy, "AE AT ET",
			 PolicyEntries(policy, walk->rows_a_page, walk->held));
		walk->told_held = true;
		if (!reads)
			walk->idle_ahead += walk->rows_a_page;
		return;
	}
	walk->fast_probes = 0;
	if (policy->mode == POLICY_WATCH)
	{
		if (walk->timed)
			TELL(policy, walk->forced && !walk->forbidden ? "WA" : "WT",
				 PolicyReadSeen(policy, walk->forced));
		else if (walk->rows_a_page > POLICY_LOOK_ENTRIES)
			TELL(policy, "WT", PolicySameBlock(policy));
	}
	fetches = policy->mode == POLICY_TOGETHER;
	if (fetches)
		TELL(policy, "TW", PolicyPage(policy));
	if (is_ahead(walk))
		return;
	if (reads && walk->timed && fetches)
	{
		bool		is_timed = PolicyTimesReads(policy);

		TELL(policy, "TA WA",
			 PolicyRead(policy, is_timed ? read_us : -1, walk->more_wanted,
						random_below(4) == 0));
		walk->fast_in_row = is_timed && read_us < 25 ?
			walk->fast_in_row + 1 : 0;
		expect(walk->fast_in_row < 3 || !PolicyTimesReads(policy), policy,
			   "the clock rests after fast reads");
	}
	if (walk->rows_a_page > 1 && policy->mode == POLICY_TOGETHER)
		TELL(policy, "", PolicyNeighbours(policy));
	walk->timed = reads;
	walk->slow_behind = walk->storage == SLOW && walk->more_wanted &&
		!walk->forbidden ? walk->slow_behind + 1 : 0;
}

/* Entries of an index-only scan that need no page. */
static void
pass_entries(Walk *walk)
{
	int			n = 1 + random_below(64);

	if (!is_ahead(walk))
		return;
	walk->idle_ahead += n;
	TELL(&walk->policy, "AE AT ET",
		 PolicyEntries(&walk->policy, n, walk->held));
	walk->told_held = true;
}

static void
begin_again(Walk *walk)
{
	bool		was_ahead = is_ahead(walk);
	uint32		used = random_below(100);
	uint32		unused = random_below(400);

	TELL(&walk->policy, "AT ET",
		 PolicyBegunAgain(&walk->policy, used, unused));
	walk->pages_ahead = walk->held = 0;
	expect(!was_ahead || walk->forced || unused <= 3 * used ||
		   !is_ahead(walk), &walk->policy, "what is useless is left");
}

static void
begin(Walk *walk)
{
	*walk = (Walk) {
		.storage = random_storage(),
		.capacity = random_below(3) == 0 ? 1 + random_below(8) :
			1 + random_below(1024),
		.rows_a_page = random_below(2) == 0 ? 1 : 1 + random_below(200),
		.more_wanted = random_below(8) != 0,
		.forced = random_below(16) == 0,
	};
	PolicyInit(&walk->policy, walk->forced);
}

static void
walk_scan(uint64 events)
{
	Walk		walk;

	begin(&walk);
	for (event = 0; event < events; event++)
	{
		PolicyMode	before = walk.policy.mode;
		uint32		what = random_below(10000);

		walk.told_held = false;
		if (what < 2)
			begin(&walk);
		else if (what < 12)
			walk.storage = random_storage();
		else if (what < 22)
			begin_again(&walk);
		else if (what < 24)
			walk.rows_a_page = random_below(2) == 0 ? 1 : 1 + random_below(200);
		else if (what < 26)
		{
			if (!is_ahead(&walk))
				walk.capacity = 1 + random_below(1024);
		}
		else if (what == 26)
		{
			walk.forbidden = true;
			walk.fast_in_row = 0;
			PolicyForbid(&walk.policy);
		}
		else if (what < 400)
			pass_entries(&walk);
		else
			visit_page(&walk);
		note_mode(&walk, before);
		check(&walk);
	}
}

/*
 * Nested loops.
 */
#define MOST_JOIN_HITS 128
#define MOST_JOIN_READS 8192
#define MOST_NEIGHBOURS 64
#define MOST_JOIN_BEHIND (MOST_SLOW_READS + MOST_REST + 2)

typedef struct JoinWalk
{
	JoinPolicy	policy;
	Storage		storage;
	int			max_distance;
	int			held;			/* rows in the ring */
	bool		more_wanted;
	bool		in_order;		/* the blocks of the inner table */
	bool		forced;
	bool		forbidden;

	/* since something else happened */
	int			hits_ahead;		/* in AHEAD: rows without a read, in a row */
	int			reads_ahead;	/* in AHEAD: rows with one */
	int			neighbours;		/* in AHEAD: blocks in order, in a row */
	int			slow_behind;	/* rows with slow reads in a row, not ahead */
	int			fast_timed;		/* rows with fast reads, timed, in a row */
} JoinWalk;

static void
check_join(const JoinWalk *walk)
{
	const JoinPolicy *policy = &walk->policy;
	bool		ahead = policy->mode == JOIN_AHEAD;

	expect(!walk->forbidden || policy->mode < JOIN_AHEAD, policy,
		   "what is forbidden is not done");
	expect(walk->forbidden || !walk->forced || ahead, policy,
		   "what is forced is done");
	expect(!ahead || (policy->distance >= 1 &&
					  policy->distance <= walk->max_distance), policy,
		   "the distance fits the ring");
	expect(!ahead || walk->reads_ahead < 2 ||
		   policy->distance >= Min(4, walk->max_distance), policy,
		   "the distance never hovers at 1 or 2");
	if (walk->forced)
		return;
	expect(!ahead || walk->hits_ahead < MOST_JOIN_HITS, policy,
		   "never ahead while everything hits");
	expect(!ahead || walk->reads_ahead < MOST_JOIN_READS, policy,
		   "reads are timed in time");
	expect(!ahead || walk->neighbours < MOST_NEIGHBOURS, policy,
		   "never ahead while the kernel reads ahead");
	expect(walk->fast_timed < 3 || !JoinPolicyTimes(policy), policy,
		   "the clock rests after fast reads");
	expect(walk->slow_behind <= MOST_JOIN_BEHIND, policy,
		   "never behind while reads are slow");
}

/* An outer row is handed out, and the inner side is scanned for it. */
static void
hand_out_row(JoinWalk *walk)
{
	JoinPolicy *policy = &walk->policy;
	bool		reads = walk->storage != CACHED && random_below(16) != 0;
	double		read_us = random_read_us(walk->storage, 25);

	if (policy->mode >= JOIN_AHEAD)
	{
		walk->hits_ahead = reads ? 0 : walk->hits_ahead + 1;
		walk->reads_ahead += reads;
		TELL(policy, "AE", JoinPolicyRow(policy, reads));
		if (policy->mode == JOIN_AHEAD && reads)
		{
			int			blocks = 1 + random_below(4);

			walk->neighbours = walk->in_order ? walk->neighbours + blocks : 0;
			TELL(policy, "AE",
				 JoinPolicyBlocks(policy, blocks, walk->in_order ? blocks : 0));
		}
		if (policy->mode == JOIN_AHEAD)
			walk->held = policy->distance;
		else if (--walk->held <= 0)
		{
			TELL(policy, "ET", JoinPolicyEnded(policy));
			expect(policy->mode == JOIN_TIME, policy, "an empty ring is left");
		}
		return;
	}
	if (policy->mode == JOIN_TIME)
	{
		bool		timed = JoinPolicyTimes(policy);

		TELL(policy, "TW TA",
			 JoinPolicyTimed(policy, reads, reads && timed ? read_us : -1,
							 walk->more_wanted, random_below(4) == 0));
		if (reads)
			walk->fast_timed =
				timed && read_us < 25 ? walk->fast_timed + 1 : 0;
		if (policy->mode == JOIN_WATCH)
			walk->fast_timed = 0;
		expect(policy->mode != JOIN_AHEAD ||
			   (reads && timed && read_us >= 25 && walk->more_wanted), policy,
			   "only slow reads begin it");
	}
	else if (reads)
		TELL(policy, "WT", JoinPolicyReadSeen(policy));
	walk->slow_behind = walk->storage == SLOW && walk->more_wanted &&
		!walk->forbidden ? walk->slow_behind + reads : 0;
	if (policy->mode == JOIN_AHEAD)
	{
		JoinPolicySetMaximum(policy, walk->max_distance);
		walk->hits_ahead = walk->reads_ahead = walk->neighbours = 0;
		walk->slow_behind = walk->fast_timed = 0;
		walk->held = 1;
	}
}

static void
begin_join_again(JoinWalk *walk)
{
	int			used = random_below(100);
	int			unused = random_below(400);

	TELL(&walk->policy, "AT ET",
		 JoinPolicyBegunAgain(&walk->policy, used, unused));
	expect(walk->forced || unused <= 3 * used ||
		   walk->policy.mode < JOIN_AHEAD, &walk->policy,
		   "what is useless is left");
}

static void
begin_join(JoinWalk *walk)
{
	*walk = (JoinWalk) {
		.storage = random_storage(),
		.max_distance = 1 + random_below(random_below(3) == 0 ? 8 : 512),
		.more_wanted = random_below(8) != 0,
		.forced = random_below(16) == 0,
	};
	JoinPolicyInit(&walk->policy, walk->forced);
	JoinPolicySetMaximum(&walk->policy, walk->max_distance);
}

static void
walk_join(uint64 events)
{
	JoinWalk	walk;

	begin_join(&walk);
	for (event = 0; event < events; event++)
	{
		uint32		what = random_below(40000);

		if (what < 2)
			begin_join(&walk);
		else if (what < 12)
			walk.storage = random_storage();
		else if (what < 16)
		{
			walk.in_order = random_below(2) == 0;
			walk.neighbours = 0;
		}
		else if (what < 26)
			begin_join_again(&walk);
		else if (what == 26)
		{
			walk.forbidden = true;
			TELL(&walk.policy, "TW AW EW", JoinPolicyForbid(&walk.policy));
			expect(walk.policy.mode == JOIN_WATCH, &walk.policy,
				   "what is forbidden is not done");
		}
		else
			hand_out_row(&walk);
		check_join(&walk);
	}
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
	if (strcmp(argv[1], "scan") == 0)
		walk_scan(events);
	else if (strcmp(argv[1], "join") == 0)
		walk_join(events);
	else if (strcmp(argv[1], "leaf") == 0)
		walk_leaf(events);
	else
		return 2;
	return 0;
}
