/*-------------------------------------------------------------------------
 *
 * policy_walk.c
 *		Random walks through the policy of index scans, without a server.
 *
 * Usage: policy_walk SEED EVENTS
 *
 * It is a simulated scan: storage has phases (cached, fast, slow), and the
 * window holds blocks as its distance says.  The policy is told what a scan
 * would tell it.  After each event the properties below are tested; the first
 * that does not hold is printed, and ends the program with status 1.
 *
 *-------------------------------------------------------------------------
 */
#include "c.h"

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
expect(bool holds, const Policy *policy, const char *property)
{
	if (holds)
		return;
	printf("seed " UINT64_FORMAT ", event " UINT64_FORMAT ": %s"
		   " (mode %d, distance %d)\n",
		   seed, event, property, (int) policy->mode, policy->distance);
	exit(1);
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
	double		read_us = walk->storage == SLOW ? 25 + random_below(1000) :
		random_below(25);

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
			PolicyBlock(policy, true, read_us);
		}
		else
		{
			walk->reads_unprobed += reads;
			PolicyBlock(policy, reads, -1);
		}
		PolicyEntries(policy, walk->rows_a_page, walk->held);
		walk->told_held = true;
		if (!reads)
			walk->idle_ahead += walk->rows_a_page;
		return;
	}
	walk->fast_probes = 0;
	if (policy->mode == POLICY_WATCH)
	{
		if (walk->timed)
			PolicyReadSeen(policy, walk->forced);
		else if (walk->rows_a_page > POLICY_LOOK_ENTRIES)
			PolicySameBlock(policy);
	}
	fetches = policy->mode == POLICY_TOGETHER;
	if (fetches)
		PolicyPage(policy);
	if (is_ahead(walk))
		return;
	if (reads && walk->timed && fetches)
	{
		bool		is_timed = PolicyTimesReads(policy);

		PolicyRead(policy, is_timed ? read_us : -1, walk->more_wanted,
				   random_below(4) == 0);
		walk->fast_in_row = is_timed && read_us < 25 ?
			walk->fast_in_row + 1 : 0;
		expect(walk->fast_in_row < 3 || !PolicyTimesReads(policy), policy,
			   "the clock rests after fast reads");
	}
	if (walk->rows_a_page > 1 && policy->mode == POLICY_TOGETHER)
		PolicyNeighbours(policy);
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
	PolicyEntries(&walk->policy, n, walk->held);
	walk->told_held = true;
}

static void
begin_again(Walk *walk)
{
	bool		was_ahead = is_ahead(walk);
	uint32		used = random_below(100);
	uint32		unused = random_below(400);

	PolicyBegunAgain(&walk->policy, used, unused);
	walk->pages_ahead = walk->held = 0;
	expect(!was_ahead || walk->forced || unused <= 3 * used ||
		   !is_ahead(walk), &walk->policy, "what is useless is left");
}

static void
begin(Walk *walk)
{
	*walk = (Walk) {
		.storage = random_below(STORAGES),
		.capacity = random_below(3) == 0 ? 1 + random_below(8) :
			1 + random_below(1024),
		.rows_a_page = random_below(2) == 0 ? 1 : 1 + random_below(200),
		.more_wanted = random_below(8) != 0,
		.forced = random_below(16) == 0,
	};
	PolicyInit(&walk->policy, walk->forced);
}

int
main(int argc, char **argv)
{
	Walk		walk;
	uint64		events;

	if (argc != 3)
		return 2;
	seed = strtoull(argv[1], NULL, 10);
	events = strtoull(argv[2], NULL, 10);
	random_state = seed * UINT64CONST(0x9E3779B97F4A7C15) + 1;
	begin(&walk);
	for (event = 0; event < events; event++)
	{
		PolicyMode	before = walk.policy.mode;
		uint32		what = random_below(10000);

		walk.told_held = false;
		if (what < 2)
			begin(&walk);
		else if (what < 12)
			walk.storage = random_below(STORAGES);
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
	return 0;
}
