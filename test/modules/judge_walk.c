/*-------------------------------------------------------------------------
 *
 * judge_walk.c
 *		The judge, without a server.
 *
 * Usage: judge_walk walk KIND SEED EVENTS
 *		  judge_walk settle SEED
 *
 * "walk" tells a judge of KIND (a number) of random events: storage has phases
 * (cached, fast, slow), and as much is ahead as the distance says.  After each
 * event its properties are tested, and after each thing that it is told, that
 * its mode has gone a way that the table at the head of judge.c has.
 *
 * "settle" has the judge decide on simulated storage, and compares what that
 * costs with what the cheaper side costs: always to look ahead, or never.
 *
 * The first property that does not hold is printed, and ends the program with
 * status 1.
 *
 *-------------------------------------------------------------------------
 */
#include "c.h"

#include "exec/judge.h"

/* that of the C library, not of the server */
#undef printf

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
seed_random(uint64 number)
{
	random_state = number * UINT64CONST(0x9E3779B97F4A7C15) + 1;
}

/*
 * Random walks.
 */

/* what the judge promises, with its own constants written out again */
#define MOST_IDLE_ENTRIES 4096
static const int least_distance[] = {4, 4, 1, 1, 4, 1, 1};
static const int most_cached[] = {256, 32, 512, 64, 64, 4, 8};

StaticAssertDecl(lengthof(least_distance) == JUDGE_KINDS &&
				 lengthof(most_cached) == JUDGE_KINDS, "each kind is walked");

typedef enum Storage
{
	CACHED,						/* in shared buffers */
	FAST,						/* in the kernel's page cache */
	SLOW,
	STORAGES
} Storage;

typedef struct Walk
{
	Judge		judge;
	Oid			relation;
	JudgeForce	force;
	Storage		storage;
	int			entries_a_unit;
	int			capacity;
	int			held;			/* units ahead */
	bool		told_held;		/* the judge was told of that just now */
	bool		forbidden;
	bool		had_no_room;
	bool		runs_to_end;

	/* since something else happened */
	int			visited;		/* units since it was begun */
	int			cached_ahead;	/* in AHEAD: units in a row without a read */
	int			idle_entries;	/* in AHEAD: entries without a read */
} Walk;

static void
expect(const Walk *walk, bool holds, const char *property)
{
	if (holds)
		return;
	printf("seed " UINT64_FORMAT ", event " UINT64_FORMAT ": %s"
		   " (mode %d, distance %d)\n",
		   seed, event, property, walk->judge.mode, walk->judge.distance);
	exit(1);
}

/*
 * Tell the judge something, which may change its mode only as "ways" has it:
 * WT is from WATCH to TRIAL, and so on.
 */
#define TELL(walk, ways, call) \
	do \
	{ \
		char		way[3] = {"WTAE"[(walk)->judge.mode], 0, 0}; \
		\
		call; \
		way[1] = "WTAE"[(walk)->judge.mode]; \
		expect(walk, way[0] == way[1] || strstr(ways, way) != NULL, \
			   "there is such a transition"); \
	} while (0)

static void
check(const Walk *walk)
{
	const Judge *judge = &walk->judge;
	JudgeKind	kind = judge->kind;
	bool		ahead = judge->mode == JUDGE_AHEAD;

	expect(walk, !walk->forbidden || judge->mode == JUDGE_WATCH,
		   "what is forbidden is not done");
	expect(walk, walk->force != JUDGE_FORCED || walk->forbidden ||
		   walk->had_no_room || ahead,
		   "what is forced is done");
	expect(walk, judge->timed ? judge->mode == JUDGE_TRIAL ||
		   (ahead && walk->force == JUDGE_MEASURES) :
		   judge->mode != JUDGE_TRIAL,
		   "the clock is read in trials, and only there");
	if (ahead)
	{
		expect(walk, judge->distance >=
			   Min(least_distance[kind], walk->capacity) &&
			   judge->distance <= walk->capacity,
			   "the distance fits the window, and never hovers at 1 or 2");
		expect(walk, walk->runs_to_end || judge->distance <=
			   least_distance[kind] + 2 * walk->visited,
			   "the distance is earned");
	}
	if (walk->force == JUDGE_FORCED)
		return;
	expect(walk, !ahead || walk->cached_ahead < most_cached[kind],
		   "never ahead while everything is cached");
	expect(walk, !ahead || walk->idle_entries < MOST_IDLE_ENTRIES,
		   "never ahead while nothing is read");
	expect(walk, judge->mode != JUDGE_ENDING || walk->held > 0 ||
		   !walk->told_held, "an empty window is left");
}

/* The mode may have changed. */
static void
note_mode(Walk *walk, JudgeMode before)
{
	if (walk->judge.mode < JUDGE_AHEAD)
		walk->held = 0;
	if (walk->judge.mode == JUDGE_AHEAD && before < JUDGE_AHEAD)
		walk->cached_ahead = walk->idle_entries = 0;
}

static void
visit_unit(Walk *walk)
{
	Judge	   *judge = &walk->judge;
	int			reads = walk->storage == CACHED || random_below(16) == 0 ?
		0 : 1 + random_below(2);
	double		us = reads == 0 ? 1 : walk->storage == SLOW ?
		25 * reads + random_below(1000) : 1 + random_below(20);
	int			entries = walk->entries_a_unit;
	bool		was_untimed;

	if (judge->mode == JUDGE_WATCH)
	{
		if (reads > 0)
			TELL(walk, walk->force == JUDGE_FORCED ? "WA" : "WT",
				 JudgeReadSeen(judge, walk->relation, 0));
		return;
	}
	if (judge->mode >= JUDGE_AHEAD)
	{
		JudgeSetMaximum(judge, walk->capacity, 0);
		if (judge->mode == JUDGE_AHEAD)
			walk->held = Max(walk->held, judge->distance);
		walk->held = Max(0, walk->held - 1);
		walk->cached_ahead = reads > 0 ? 0 : walk->cached_ahead + 1;
		walk->idle_entries = reads > 0 ? 0 : walk->idle_entries + entries;
	}
	walk->visited++;
	was_untimed = judge->mode == JUDGE_AHEAD && !judge->timed;
	TELL(walk, "TW TA AE",
		 JudgeUnit(judge, reads, judge->timed ? us : 0, walk->held,
				   random_below(8) == 0 ? 0 : PG_INT64_MAX,
				   random_below(4) == 0));
	expect(walk, !was_untimed || !judge->timed ||
		   walk->held <= judge->distance,
		   "what a block profits from is ahead in other blocks, too");
	if (judge->mode < JUDGE_AHEAD)
		return;
	TELL(walk, "AE AW AT EW ET", JudgeEntries(judge, entries, walk->held));
	walk->told_held = true;
}

static void
begin_again(Walk *walk)
{
	uint32		used = random_below(100);
	uint32		unused = random_below(400);

	TELL(walk, "AW EW", JudgeBegunAgain(&walk->judge, used, unused));
	walk->visited = walk->held = 0;
	expect(walk, walk->force == JUDGE_FORCED || unused <= 3 * used ||
		   walk->judge.mode < JUDGE_AHEAD, "what is useless is left");
}

static void
begin(Walk *walk, JudgeKind kind)
{
	*walk = (Walk) {
		.storage = random_below(STORAGES),
		.entries_a_unit = 1,
		.capacity = 1 + random_below(random_below(3) == 0 ? 8 : 1024),
		.force = random_below(8) == 0 ? 1 + random_below(2) : JUDGE_MEASURES,
		.relation = random_below(4) == 0 ? InvalidOid :
			1 + random_below(100),
	};
	JudgeInit(&walk->judge, kind, walk->force);
	JudgeSetMaximum(&walk->judge, walk->capacity, 0);
	walk->runs_to_end = random_below(8) == 0;
	if (walk->runs_to_end)
		JudgeRunsToEnd(&walk->judge);
}

static void
walk_randomly(JudgeKind kind, uint64 events)
{
	Walk		walk;

	begin(&walk, kind);
	for (event = 0; event < events; event++)
	{
		JudgeMode	before = walk.judge.mode;
		uint32		what = random_below(10000);

		walk.told_held = false;
		if (what < 4)
			begin(&walk, kind);
		else if (what < 14)
		{
			walk.storage = random_below(STORAGES);
			walk.entries_a_unit = 1 + random_below(random_below(2) * 99 + 1);
		}
		else if (what < 24)
			begin_again(&walk);
		else if (what == 24)
		{
			walk.forbidden = true;
			TELL(&walk, "TW AW EW", JudgeForbid(&walk.judge));
		}
		else if (what == 25)
		{
			walk.had_no_room = true;
			TELL(&walk, "AE", JudgeNoRoom(&walk.judge));
		}
		else if (what == 26)
		{
			TELL(&walk, "AE", JudgeProcessorsAreBusy(&walk.judge));
			expect(&walk, walk.force != JUDGE_MEASURES ||
				   walk.judge.mode != JUDGE_AHEAD,
				   "nothing is ahead where processors are busy");
		}
		else
			visit_unit(&walk);
		note_mode(&walk, before);
		check(&walk);
	}
}

/*
 * Simulated storage.
 */
#define MOST_AHEAD 1024

typedef struct Model
{
	const char *name;
	double		latency;		/* µs of a read */
	double		jitter;			/* it varies by so much of that */
	int			parallel;		/* reads at a time */
	double		busy;			/* µs of a processor, of a read without */
	double		start;			/* and to start a read ahead */
	double		delay;			/* µs until that is begun, on average */
	int			kernel;			/* the kernel reads so many in order at once */
	int			slow;			/* units after which it has read them all */
	int			capacity;		/* most units ahead */

	/* most that the judge may cost: a factor, and units, of the cheaper side */
	double		factor;
	int			units;
} Model;

static const Model models[] = {
	{"page cache", 5, 0.5, 2, 0, 8, 5, 0, 0, 256, 1.02, 64},
	{"page cache of a busy machine", 30, 0.5, 1, 0, 15, 20, 0, 0, 256, 1.14, 64},
	{"disk", 40, 0.5, 4, 0, 4, 0, 0, 0, 256, 1.02, 64},
	{"disk, look-ups", 40, 0.5, 4, 0, 10, 0, 0, 0, 32, 1.02, 64},
	{"fast disk, half of a read is computing", 22, 0.5, 16, 21, 32, 0, 0, 0, 256,
	1.02, 200},
	{"fast disk, to start reads is dear", 22, 0.5, 16, 21, 45, 0, 0, 0, 256, 1.03,
	64},
	{"cloud volume", 600, 0.3, 64, 0, 4, 0, 0, 0, 256, 1.05, 400},
	{"cloud volume, look-ups", 600, 0.3, 16, 0, 10, 0, 0, 0, 32, 1.03, 64},
	{"starving workers", 60, 0.5, 3, 0, 4, 2000, 0, 0, 256, 4, 0},
	{"starving workers, short window", 60, 0.5, 3, 0, 4, 2000, 0, 0, 16, 1.03,
	300},
	{"processors are busy", 40, 0.5, 1, 0, 60, 10, 0, 0, 256, 1.03, 280},
	{"the kernel reads ahead", 600, 0.3, 1, 0, 25, 0, 32, 0, 256, 1.10, 64},
};

/*
 * The kernel reads a whole file ahead: each execution begins with slow reads.
 * These are cheaper with look-ahead, or are not.
 */
static const Model slow_at_first[] = {
	{"a file read by the kernel, cheaper at first", 100, 0.5, 2, 0, 25, 10, 0,
	100, 256, 1.35, 64},
	{"a file read by the kernel, never cheaper", 100, 0.5, 1, 0, 25, 10, 0, 100,
	16, 1.1, 64},
};

typedef struct Simulation
{
	const Model *model;
	double		now;			/* µs */
	double		free_at[64];	/* when each of "parallel" reads has ended */
	double		done_at[MOST_AHEAD];	/* a ring of units ahead */
	int			first;
	int			held;
	int			reads;
	int			timed;			/* units that were timed */
} Simulation;

static double
read_time(Simulation *sim)
{
	const Model *model = sim->model;
	double		part = random_below(1000000) / 1000000.0;

	if (model->kernel > 0 && sim->reads++ % model->kernel != 0)
		return 4;
	if (model->slow > 0 && sim->reads++ >= model->slow)
		return 4;
	return model->latency * (1 + model->jitter * (2 * part - 1));
}

static void
start_read(Simulation *sim)
{
	const Model *model = sim->model;
	double	   *slot = &sim->free_at[0];
	double		begins;

	for (int i = 1; i < model->parallel; i++)
		if (sim->free_at[i] < *slot)
			slot = &sim->free_at[i];
	sim->now += model->start;
	begins = sim->now + model->delay * 2 * random_below(1000000) / 1000000.0;
	*slot = Max(*slot, begins) + read_time(sim);
	sim->done_at[(sim->first + sim->held++) % MOST_AHEAD] = *slot;
}

/* One unit, with "distance" ahead (-1: none is added); returns its µs. */
static double
unit_ahead(Simulation *sim, int distance)
{
	double		before = sim->now;

	if (sim->held <= distance - Min(16, distance / 2))
		while (sim->held <= distance)
			start_read(sim);
	sim->now = Max(sim->now, sim->done_at[sim->first]) + 2;
	sim->first = (sim->first + 1) % MOST_AHEAD;
	sim->held--;
	return sim->now - before;
}

static double
unit_without(Simulation *sim)
{
	double		before = sim->now;

	sim->now += read_time(sim) + sim->model->busy + 2;
	return sim->now - before;
}

/* One execution; returns its µs.  relation: Invalid: it never looks ahead. */
static double
execute(Simulation *sim, Oid relation, JudgeForce force, int units)
{
	Judge		judge;

	JudgeInit(&judge, JUDGE_HEAP_PAGES, force);
	sim->held = sim->reads = 0;
	sim->now = 0;
	memset(sim->free_at, 0, sizeof(sim->free_at));
	for (int i = 0; i < units; i++)
	{
		int			left = units - i - 1;
		double		us;

		if (!OidIsValid(relation))
			us = unit_without(sim);
		else if (judge.mode == JUDGE_WATCH)
		{
			us = unit_without(sim);
			JudgeReadSeen(&judge, relation, 0);
		}
		else
		{
			bool		timed = judge.timed;

			JudgeSetMaximum(&judge, sim->model->capacity, 0);
			if (judge.mode == JUDGE_TRIAL)
				us = unit_without(sim);
			else if (judge.mode == JUDGE_AHEAD)
				us = unit_ahead(sim, Min(judge.distance, left));
			else
				us = unit_ahead(sim, -1);
			sim->timed += timed;
			JudgeUnit(&judge, 1, timed ? us : 0, sim->held, left, false);
			if (judge.mode >= JUDGE_AHEAD)
				JudgeEntries(&judge, 1, sim->held);
		}
		sim->now += 2;			/* the rest of the query */
	}
	return sim->now;
}

static double
execute_all(const Model *model, Oid relation, JudgeForce force,
			int units, int executions, int *timed)
{
	Simulation	sim = {.model = model};
	double		us = 0;

	for (int i = 0; i < executions; i++)
		us += execute(&sim, relation, force, units);
	*timed = sim.timed;
	return us;
}

static void
settle(const Model *model, int number, int units, int executions)
{
	int			timed;
	double		without = execute_all(model, InvalidOid, JUDGE_MEASURES, units,
									  executions, &timed);
	double		with = execute_all(model, number, JUDGE_FORCED, units,
								   executions, &timed);
	double		judged = execute_all(model, number, JUDGE_MEASURES, units,
									 executions, &timed);
	double		best = Min(without, with);
	const char *property = NULL;

	/* an execution cannot know that it has to read before it has read */
	best += 2 * executions * Max(without, best) / units / executions;
	if (judged > best * model->factor +
			model->units * without / units / executions)
		property = "the cheaper side is kept";
	else if (model->slow == 0 &&
			 judged > 1.03 * without + 256 * without / units / executions)
		property = "never much dearer than stock";
	else if (executions == 1 && units >= 20000 && timed > units / 20)
		property = "the clock is read seldom";
	else if (executions > 1 && model->latency < 10 &&
			 timed > units * executions / 10)
		property = "short executions of fast reads are seldom timed";
	if (getenv("JUDGE_WALK_PRINTS") != NULL)
		printf("%-40s without %7.1f with %7.1f judged %7.1f timed %d\n",
			   model->name, without / units / executions,
			   with / units / executions, judged / units / executions, timed);
	if (property == NULL)
		return;
	printf("seed " UINT64_FORMAT ", %s, %d units %d times: %s (without %.1f,"
		   " with %.1f, judged %.1f, timed %d)\n",
		   seed, model->name, units, executions, property,
		   without / units / executions, with / units / executions,
		   judged / units / executions, timed);
	exit(1);
}

/* A plan has many relations: none of them makes another one forgotten. */
static void
recall_many(void)
{
	for (int number = 1; number <= 100; number++)
		JudgeRecall(JUDGE_LOOKUPS, number, 0)->left = number;
	for (int number = 1; number <= 100; number++)
	{
		if (JudgeRecall(JUDGE_LOOKUPS, number, 0)->left == number)
			continue;
		printf("seed " UINT64_FORMAT ": relation %d was forgotten\n", seed, number);
		exit(1);
	}
}

/* What was found on a page cache is not believed on slower storage. */
static void
settle_anew(void)
{
	const Model busy = {"a busy page cache", 30, 0.5, 1, 0, 100, 20, 0, 0, 256, 0,
	0};
	const Model then[] = {
		{"cloud volume", 600, 0.3, 64, 0, 4, 0, 0, 0, 256, 0, 0},
		{"disk", 100, 0.5, 16, 0, 4, 0, 0, 0, 256, 0, 0},
	};

	for (int i = 0; i < (int) lengthof(then); i++)
	{
		int			timed;
		double		judged;

		(void) execute_all(&busy, 5000 + i, JUDGE_MEASURES, 20000, 1, &timed);
		judged = execute_all(&then[i], 5000 + i, JUDGE_MEASURES, 1000, 1,
							 &timed);
		if (judged < 1000 * then[i].latency * 2 / 3)
			continue;
		printf("seed " UINT64_FORMAT ": on a %s what has changed is noticed"
			   " (%.1f)\n", seed, then[i].name, judged / 1000);
		exit(1);
	}
}

/*
 * Rows in the order of the pages: a read, and many rows that need none.  Return
 * the number of reads until look-ahead is tried.
 *		slow	reads that are slow, until the kernel has read the files ahead
 */
static int
reads_in_order(int slow)
{
	Judge		judge;

	JudgeInit(&judge, JUDGE_LOOKUPS, JUDGE_MEASURES);
	JudgeSetMaximum(&judge, 256, 0);
	for (int reads = 0; reads < 1000; reads++)
	{
		if (judge.mode == JUDGE_WATCH)
			JudgeReadSeen(&judge, InvalidOid, 0);
		else
			JudgeUnit(&judge, 1, reads < slow ? 200 : 5, 0, PG_INT64_MAX,
					  false);
		for (int i = 0; i < 50 && judge.mode == JUDGE_TRIAL; i++)
			JudgeUnit(&judge, 0, 0.5, 0, PG_INT64_MAX, false);
		if (judge.mode == JUDGE_AHEAD)
			return reads;
	}
	return 1000;
}

/*
 * Leaf pages that the kernel has read after the first ones: a copy of each by
 * another process saves a third of a short time.  Return how many were read
 * ahead.
 */
static int
copies_ahead(void)
{
	Judge		judge;
	int			ahead = 0;

	JudgeInit(&judge, JUDGE_LEAF_PAGES, JUDGE_MEASURES);
	JudgeSetMaximum(&judge, 64, 0);
	for (int reads = 0; reads < 3000; reads++)
	{
		ahead += judge.mode == JUDGE_AHEAD;
		if (judge.mode == JUDGE_WATCH)
			JudgeReadSeen(&judge, InvalidOid, 0);
		else if (judge.mode == JUDGE_ENDING)
			JudgeEntries(&judge, 0, 0);
		else
		{
			double		without = reads == 1 ? 300 : reads == 2 ? 26 : 20;

			JudgeUnit(&judge, 1, judge.mode == JUDGE_AHEAD ? 14 : without, 0,
					  PG_INT64_MAX, false);
		}
	}
	return ahead;
}

/*
 * Executions that begin with cold caches: their first rows read 11 pages, and
 * their last ones 1.  A page takes 400 us, and 300 with look-ahead.  Return
 * how many of 3,000 rows are looked ahead for.
 */
static int
rows_of_cold_caches(void)
{
	int			ahead = 0;

	for (int execution = 0; execution < 12; execution++)
	{
		Judge		judge;

		JudgeInit(&judge, JUDGE_LOOKUPS, JUDGE_MEASURES);
		JudgeComparesReads(&judge);
		JudgeSetMaximum(&judge, 256, 0);
		for (int row = 0; row < 250; row++)
		{
			int			reads = 1 + 10 * 64 * 64 / ((64 + row) * (64 + row));
			bool		is_ahead = judge.mode == JUDGE_AHEAD;

			ahead += is_ahead;
			if (judge.mode == JUDGE_WATCH)
				JudgeReadSeen(&judge, 7000, 0);
			else if (judge.mode == JUDGE_ENDING)
				JudgeEntries(&judge, 0, 0);
			else
				JudgeUnit(&judge, reads, reads * (is_ahead ? 300 : 400), 0,
						  250 - row, true);
		}
	}
	return ahead;
}

static void
follow_order(void)
{
	const char *property = NULL;

	if (reads_in_order(8) < 1000)
		property = "files that the kernel reads ahead are left to it";
	else if (reads_in_order(1000) > 16)
		property = "rows in order are looked ahead for";
	else if (copies_ahead() > 300)
		property = "copies from the page cache are left to this process";
	else if (rows_of_cold_caches() < 2500)
		property = "units that read less and less are compared by the read";
	if (property == NULL)
		return;
	printf("seed " UINT64_FORMAT ": %s\n", seed, property);
	exit(1);
}

/* An execution may visit more units than can be counted. */
static void
visit_many(void)
{
	Judge		judge;

	JudgeInit(&judge, JUDGE_LOOKUPS, JUDGE_FORCED);
	JudgeSetMaximum(&judge, 100, 0);
	judge.visited = PG_INT32_MAX - 1;
	for (int i = 0; i < 3; i++)
		JudgeUnit(&judge, 1, 0, 100, 0, false);
	if (judge.distance == 100)
		return;
	printf("seed " UINT64_FORMAT ": the distance is %d\n", seed,
		   judge.distance);
	exit(1);
}

int
main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "walk") == 0)
	{
		seed = strtoull(argv[3], NULL, 10);
		seed_random(seed);
		walk_randomly((JudgeKind) atoi(argv[2]), strtoull(argv[4], NULL, 10));
		return 0;
	}
	if (argc != 3 || strcmp(argv[1], "settle") != 0)
		return 2;
	seed = strtoull(argv[2], NULL, 10);
	seed_random(seed);
	for (int i = 0; i < (int) lengthof(models); i++)
	{
		settle(&models[i], 1000 + i, 20000, 1);
		settle(&models[i], 2000 + i, 2000, 1);
		settle(&models[i], 3000 + i, 100, 1);
		settle(&models[i], 4000 + i, 50, 400);
	}
	for (int i = 0; i < (int) lengthof(slow_at_first); i++)
	{
		settle(&slow_at_first[i], 6000 + i, 20000, 1);
		settle(&slow_at_first[i], 7000 + i, 600, 100);
	}
	settle_anew();
	recall_many();
	visit_many();
	follow_order();
	return 0;
}
