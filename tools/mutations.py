# ruff: noqa: E501
"""The mutations of mutate.py: guards of look-ahead, and of estimates, taken away one by one.

Each hazard that has code of its own stands here, with the tests that must notice.  A mutation without
tests is one that nobody can notice by what a query returns, counts, holds or leaves behind, or not on
the embedded server; ``why`` then says so.
"""

from __future__ import annotations

from dataclasses import dataclass

HAZARDS = "test/python/test_scan_hazards.py::"
ENDS = "test/python/test_scan_ends.py::"
COUNTERS = "test/python/test_scan_counters.py::"
MUTANTS = "test/python/test_scan_mutants.py::"
DIFFERENTIAL = "test/python/test_scan_differential.py::"
PAGES = "test/python/test_index_pages.py::"
JOIN_HAZARDS = "test/python/test_join_hazards.py::"
JOIN_ENDS = "test/python/test_join_ends.py::"
NO_HARM = "test/python/test_no_harm.py::"
WALKS = "test/python/test_policy.py::test_walks"
JOIN_SIDES = "test/python/test_join_sides.py::"
INTERRUPTS = "test/python/test_interrupts.py::test_interrupted"
LOCK_WAITS = "test/python/test_lock_waits.py::test_lock"


@dataclass(frozen=True)
class Mutation:
    """A change of one place of the source.

    old: text that is there exactly once; new: what replaces it
    tests: of which one must fail then
    why: what goes wrong, and when"""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    why: str


MUTATIONS = [
    # Entries that are marked dead
    Mutation(
        "kill what is invisible",
        "src/scan/page_rows.c",
        "scan->kill_prior_tuple = row->all_dead;",
        "scan->kill_prior_tuple = !row->visible;",
        (MUTANTS + "test_what_is_invisible_is_not_dead",),
        "Entries of rows that other transactions can see are marked dead, and lost to every later scan.",
    ),
    Mutation(
        "kill nothing",
        "src/scan/page_rows.c",
        "scan->kill_prior_tuple = row->all_dead;",
        "scan->kill_prior_tuple = false;",
        (HAZARDS + "test_dead_entries_are_marked_as_stock_marks_them",),
        "Dead entries stay in the index, and each scan visits their rows again.",
    ),
    Mutation(
        "kill on a standby",
        "src/scan/page_rows.c",
        "if (!scan->xactStartedInRecovery)",
        "if (true)",
        (HAZARDS + "test_a_standby_marks_nothing",),
        "What is dead to a snapshot of a standby may be alive on its primary.",
    ),
    # Rows that are looked up together
    Mutation(
        "rows without their pin",
        "src/scan/page_rows.h",
        "LookaheadHeapBuffer(scan) == rows->buffer &&",
        "true &&",
        (HAZARDS + "test_rows_looked_up_together_are_used_under_their_pin_only",),
        "A row that was looked up under a pin that has been given back is stored in a slot of another page.",
    ),
    Mutation(
        "rows of another entry",
        "src/scan/page_rows.h",
        "ItemPointerEquals(&rows->rows[rows->next].tid,\n\t\t\t\t\t\t\t\t &scan->xs_heaptid)",
        "true",
        (HAZARDS + "test_turns_within_a_page",),
        "A cursor that turns within a page returns the rows that would have come.",
    ),
    Mutation(
        "member of the HOT chain",
        "src/scan/page_rows.c",
        "ItemPointerSetOffsetNumber(&scan->xs_heaptid, row->offset);",
        ";",
        (MUTANTS + "test_members_of_hot_chains",),
        "ctid is that of the chain's root, and an UPDATE or a WHERE CURRENT OF meets the wrong version.",
    ),
    Mutation(
        "rows looked up in SERIALIZABLE",
        "src/scan/page_rows.c",
        "if (IsolationIsSerializable())\n\t\treturn false;",
        "",
        (HAZARDS + "test_serializable_reads_no_row_before_its_turn",),
        "Predicate locks on rows that the scan does not come to: transactions fail that would not with stock.",
    ),
    Mutation(
        "backward as forward",
        "src/scan/page_rows.c",
        "int\t\t\tstep = ScanDirectionIsForward(direction) ? 1 : -1;",
        "int\t\t\tstep = 1;",
        (),
        "What was looked up for the wrong direction is not used, since PageRowsHave() compares TIDs (see"
        " 'rows of another entry'): a scan backward looks rows up in vain.",
    ),
    # Snapshots
    Mutation(
        "any snapshot",
        "src/exec/takeover.c",
        "IsMVCCSnapshot(queryDesc->estate->es_snapshot)",
        "true",
        (MUTANTS + "test_every_version_of_a_row",),
        "Under a snapshot that is not of the MVCC kind, further members of a HOT chain are lost.",
    ),
    # Lossy indexes and ordering operators
    Mutation(
        "no recheck",
        "src/scan/next_row.c",
        "if (scan->xs_recheck)\n\t\t{\n\t\t\tecontext->ecxt_scantuple = slot;\n\t\t\tif (!ExecQualAndReset(state->indexqualorig",
        "if (false)\n\t\t{\n\t\t\tecontext->ecxt_scantuple = slot;\n\t\t\tif (!ExecQualAndReset(state->indexqualorig",
        (MUTANTS + "test_lossy_indexes_are_rechecked",),
        "Rows that a lossy index returns for want of knowledge are results.",
    ),
    Mutation(
        "no recheck of index-only scans",
        "src/scan/next_row.c",
        "if (!ExecQualAndReset(state->recheckqual, econtext))",
        "if (false)",
        (),
        "No operator class of the server's access methods that can return a value asks for a recheck; the code"
        " is as in the server's own loop.",
    ),
    Mutation(
        "ordered by distance",
        "src/scan/scan.c",
        "if (norderbys > 0)",
        "if (false)",
        (MUTANTS + "test_nearest_neighbours_come_in_their_order",),
        "The server reorders what an index can order only roughly; our loop does not.",
    ),
    # SERIALIZABLE
    Mutation(
        "no predicate lock on a visible page",
        "src/scan/next_row.c",
        "if (!from_heap && IsolationIsSerializable())",
        "if (false)",
        (
            HAZARDS + "test_write_skew_is_prevented",
            HAZARDS + "test_serializable_reads_no_row_before_its_turn",
        ),
        "An index-only scan does not lock what it reads, and write skew commits.",
    ),
    Mutation(
        "second scan in SERIALIZABLE",
        "src/index/btree_descents.c",
        "!IsolationIsSerializable() &&",
        "true &&",
        (MUTANTS + "test_serializable_arrays_lock_what_stock_locks",),
        "The second scan locks leaf pages that the scan does not come to.",
    ),
    # Parallel scans
    Mutation(
        "next leaf of a parallel scan",
        "src/index/btree_leaf.c",
        "scan->parallel_scan != NULL ||",
        "false ||",
        (MUTANTS + "test_leaf_pages_that_another_process_may_take_are_not_read",),
        "Each process reads ahead for the leaf page that another one takes.",
    ),
    Mutation(
        "second scan of a parallel scan",
        "src/index/btree_descents.c",
        "scan->parallel_scan == NULL &&",
        "true &&",
        (MUTANTS + "test_leaf_pages_that_another_process_may_take_are_not_read",),
        "Each process reads ahead for all leaf pages.",
    ),
    # How far
    Mutation(
        "no bound on entries for a refill",
        "src/scan/heap_ahead.c",
        "while (looks-- > 0 && wanted > 0",
        "while (wanted > 0",
        (MUTANTS + "test_entries_looked_at_for_one_refill_are_bounded",),
        "Where no entry needs a heap page, the whole index is walked before the next row is returned.",
    ),
    Mutation(
        "beyond the rows wanted",
        "src/scan/heap_ahead.c",
        "EntriesAheadOrdinal(ahead->entries) < last &&",
        "true &&",
        (HAZARDS + "test_limit_reads_what_stock_reads",),
        "A LIMIT reads blocks for rows that nobody wants, and meets damage that stock does not reach.",
    ),
    Mutation(
        "LIMIT unknown",
        "src/exec/rows_wanted.c",
        "\tbounds->limit = limit;\n",
        "\tbounds->limit = NULL;\n",
        (HAZARDS + "test_limit_reads_what_stock_reads",),
        "The same for every LIMIT.",
    ),
    Mutation(
        "LIMIT through a filter",
        "src/exec/rows_wanted.c",
        "if (plan_state->qual == NULL && plan_state->initPlan == NIL &&\n\t\t\t\tplan_state->subPlan == NIL)",
        "if (true)",
        (),
        "The rows wanted of a node below a filter are bounded too tightly: less is read ahead than could be.",
    ),
    Mutation(
        "LIMIT below a filter",
        "src/exec/rows_wanted.c",
        "if (taken->plan_state->qual != NULL)\n\t\treturn wanted;",
        "",
        (),
        "With a filter, look-ahead ends after as many entries as rows are wanted: less is read ahead than could be.",
    ),
    Mutation(
        "OFFSET plus LIMIT overflows",
        "src/exec/rows_wanted.c",
        "pg_add_s64_overflow(limit->offset, limit->count, &end))",
        "(pg_add_s64_overflow(limit->offset, limit->count, &end), false))",
        (MUTANTS + "test_limit_that_means_none_looks_ahead",),
        "LIMIT 9223372036854775807 with an OFFSET means that no row is wanted.",
    ),
    Mutation(
        "part of a unique key",
        "src/scan/scan.c",
        "if (nkeys < columns)\n\t\treturn false;",
        "columns = Min(columns, nkeys);",
        (
            MUTANTS + "test_part_of_a_unique_key_looks_ahead",
            DIFFERENTIAL + "test_part_of_a_unique_key_is_served",
        ),
        "A scan of many rows is refused as a look-up of one.",
    ),
    Mutation(
        "array on a unique key",
        "src/scan/scan.c",
        "(SK_SEARCHARRAY | SK_ROW_HEADER)",
        "(SK_ROW_HEADER)",
        (
            MUTANTS + "test_part_of_a_unique_key_looks_ahead",
            DIFFERENTIAL + "test_part_of_a_unique_key_is_served",
        ),
        "The same for = ANY.",
    ),
    Mutation(
        "second scan on the first page",
        "src/scan/entries_ahead.c",
        "if (ahead->pages < PAGES_BEFORE_DESCENTS)\n\t\t\treturn false;",
        "",
        (MUTANTS + "test_array_scans_search_nothing_more_on_their_first_page",),
        "A scan of array keys that is left on its first page has searched the index for the next match.",
    ),
    # Which tables and nodes
    Mutation(
        "table that is not heap",
        "src/scan/scan.c",
        "if (heap->rd_tableam != GetHeapamTableAmRoutine())",
        "if (false)",
        (DIFFERENTIAL + "test_a_table_that_is_not_heap",),
        "Another table access method's rows are read as heap's.",
    ),
    Mutation(
        "node of another extension",
        "src/exec/takeover.c",
        "!TakeoverIsServersOwn(plan_state->ExecProcNodeReal)",
        "false",
        (DIFFERENTIAL + "test_nodes_that_another_extension_wraps",),
        "Another extension that wraps the node's function is not called for its rows.",
    ),
    # What is held, and for how long
    Mutation(
        "pins outlive the call",
        "src/stream/page_read.c",
        "ReleaseBuffer(buffers[j]);",
        "if (j > i) ReleaseBuffer(buffers[j]);",
        (ENDS + "test_abandoned_scans_pin_nothing", ENDS + "test_idle_portal_pins_what_stock_pins"),
        "A block that was read ahead stays pinned: VACUUM misses it, HOT updates are lost, buffers leak.",
    ),
    Mutation(
        "pin on the visibility map",
        "src/scan/heap_ahead.c",
        "if (BufferIsValid(ours))\n\t\tReleaseBuffer(ours);",
        "",
        (MUTANTS + "test_more_than_one_page_of_the_visibility_map",),
        "A page of the visibility map leaks its pin.",
    ),
    Mutation(
        "pin on a leaf page",
        "src/scan/entries_ahead.c",
        "if (BufferIsValid(buffer))\n\t\tReleaseBuffer(buffer);",
        "",
        (HAZARDS + "test_vacuum_under_a_paused_scan", ENDS + "test_idle_portal_pins_what_stock_pins"),
        "A leaf page that was looked at ahead leaks its pin.",
    ),
    Mutation(
        "pin of the second scan",
        "src/index/btree_descents.c",
        "BTScanPosUnpinIfPinned(*pos);",
        ";",
        (HAZARDS + "test_idle_cursor_pins_what_stock_pins",),
        "Of an unlogged index, whose scans keep the pin on their page, the second scan pins one more.",
    ),
    Mutation(
        "memory without a bound",
        "src/exec/taken.c",
        "int64\t\tgranted = Max(least, Min(wanted, left / 2));",
        "int64\t\tgranted = wanted + 0 * (left + least);",
        (MUTANTS + "test_work_mem_bounds_what_is_known_ahead",),
        "Each of many scans that are open at once has what one of them may have, whatever work_mem is.",
    ),
    Mutation(
        "shared buffers all in flight",
        "src/stream/page_read.c",
        "return LookaheadAdditionalPins(local, wanted + blocks) - blocks;",
        "return wanted;",
        ("test/python/test_window_ends.py::test_reads_that_do_not_end",),
        "The server finds no buffer that is not being read, and says so.",
    ),
    Mutation(
        "reads described on the stack",
        "src/compat.h",
        "static ReadBuffersOperation op;",
        "ReadBuffersOperation op = {0};",
        (),
        "When the server is done with a read, it writes its result into what described it: into a part of the stack"
        " that has been left, or is used for something else by then. That no test fails is luck.",
    ),
    Mutation(
        "local buffers all in flight",
        "src/stream/page_read.c",
        "wanted = Min(wanted, num_temp_buffers / LOCAL_BUFFERS_PART - blocks);",
        ";",
        (),
        "The server finds no local buffer that is not being read, and goes round for ever. Only io_uring reads local"
        " buffers in the background, which the embedded server, for which mutants are built, does not have.",
    ),
    Mutation(
        "query not forgotten",
        "src/exec/taken.c",
        "MemoryContextRegisterResetCallback(estate->es_query_cxt, &query->forget);",
        "",
        (
            MUTANTS + "test_queries_are_forgotten_with_their_memory",
            COUNTERS + "test_failed_queries_are_counted",
        ),
        "What is known of a query leads into memory that is gone.",
    ),
    Mutation(
        "last query not forgotten",
        "src/exec/taken.c",
        "if (lookahead_last_query == query)\n\t\tlookahead_last_query = &no_query;",
        "",
        (),
        "A query whose EState has the address of one that is gone finds what was kept for the other, in memory that"
        " is gone. It has ended, so nothing is executed for it; that it is read, only valgrind would show.",
    ),
    Mutation(
        "wait between two ends",
        "src/exec/taken.c",
        "taken->taker->end(taken);",
        "taken->taker->end(taken), taken->taker->wait(taken);",
        (INTERRUPTS + "[end, loop-cancel]",),
        "An interrupt of the wait leaves nodes in lists of the process while their memory goes.",
    ),
    Mutation(
        "no wait at the end",
        "src/exec/takeover.c",
        "\t\tTakenQueryWait(query);\n",
        "",
        (INTERRUPTS + "[end, loop-cancel]",),
        "A process that goes on to other things, or is idle, keeps buffers in flight.",
    ),
    Mutation(
        "bitmap scans are not unlinked",
        "src/scan/bitmap_scan.c",
        "\tdlist_delete(&node->link);\n",
        "",
        (INTERRUPTS + "[end, loop-cancel]",),
        "The list of bitmap scans leads into memory that is gone.",
    ),
    Mutation(
        "heap blocks are not submitted",
        "src/stream/window.c",
        "\tif (background)\n\t\tLookaheadExitBatch();\n",
        "",
        (LOCK_WAITS + "[worker-FOR UPDATE]",),
        "A session waits for a lock whose holder waits for what it has not submitted.",
    ),
    Mutation(
        "leaf pages are not submitted",
        "src/scan/leaves_ahead.c",
        "\tif (background)\n\t\tLookaheadExitBatch();\n",
        "",
        (LOCK_WAITS + "[worker-function above an index-only scan]",),
        "A session waits for a lock whose holder waits for what it has not submitted.",
    ),
    Mutation(
        "pages of a join are not submitted",
        "src/lookup/lookup.c",
        "\tif (PageReadsInBackground(lookup->index))\n\t\tLookaheadExitBatch();\n",
        "",
        (LOCK_WAITS + "[worker-FOR UPDATE of a join]",),
        "A session waits for a lock whose holder waits for what it has not submitted.",
    ),
    Mutation(
        "list of reads without an end",
        "src/stream/page_read.c",
        "\t\tmake_room();\n",
        "",
        (),
        "A read beyond the last place of the list overwrites what lies behind it. The server itself allows one process"
        " no more reads of its own than the list has places; on 18, only a list with fewer places is ever full.",
    ),
    Mutation(
        "wait for what is only gathered",
        "src/stream/page_read.c",
        "\tLookaheadSubmit();\n",
        "",
        (),
        "The server panics if a process waits for a read of its own that it has not submitted. That the list of reads"
        " is full in the midst of a batch, the embedded server cannot be brought to.",
    ),
    Mutation(
        "slot of a living process",
        "src/observe/progress.c",
        "BackendPidGetProc(owner) == NULL &&",
        "!is_alive(owner, slots[i].procno) &&",
        (),
        "With all slots taken, one is taken from a process in the moment between its taking it and its telling its"
        " place: a few instructions, in which no test can hold it.",
    ),
    # Counters
    Mutation(
        "hits ahead are counted",
        "src/stream/page_read.c",
        "UncountAccesses(rel, hits);",
        "(void) hits;",
        (COUNTERS + "test_completed_scans_count_as_stock",),
        "A block that is found cached when it is looked at ahead is counted twice.",
    ),
    Mutation(
        "reads owed are kept",
        "src/stream/uncount.h",
        "	*owed -= hits;\n",
        "",
        (COUNTERS + "test_completed_scans_count_as_stock",),
        "More hits are counted as reads than were owed.",
    ),
    Mutation(
        "reads owed are not counted",
        "src/stream/uncount.h",
        "int64\t\thits = Min(HitsSince(rel, before), *owed);",
        "int64\t\thits = 0;",
        (COUNTERS + "test_completed_scans_count_as_stock",),
        "An index page that was read ahead counts as found, and never as read.",
    ),
    Mutation(
        "searches of the second scan",
        "src/stream/uncount.h",
        "now->numscans -= now->numscans - before->counts.numscans;",
        ";",
        (MUTANTS + "test_searches_of_an_index_are_counted_once",),
        "idx_scan counts descents that the scan did not make.",
    ),
    Mutation(
        "counters set back",
        "src/stream/uncount.h",
        "return rel->pgstat_info->counts.blocks_hit - before->counts.blocks_hit;",
        "return *UsageHits(rel) - before->hits;",
        (),
        "What operators' own queries count would be taken back with our own, but as many reads are then owed less"
        " than none, and the next entry settles that: a scan that completes has the same sums.",
    ),
    Mutation(
        "failed queries are not counted",
        "src/exec/taken.c",
        "\tTakenQueryEnd(query);\n",
        "",
        (COUNTERS + "test_failed_queries_are_counted",),
        "A query that fails is counted when its memory goes.",
    ),
    Mutation(
        "EXPLAIN before the end",
        "src/scan/scan.c",
        "HeapAheadPause(node->ahead);\t/* what is left in it is not used */",
        ";",
        (COUNTERS + "test_explain_tells_what_the_view_counts",),
        "EXPLAIN tells of no unused block, the view of many.",
    ),
    # Damaged pages of a btree
    Mutation(
        "tuples of any length",
        "src/index/btree_tuple.c",
        "return off <= size;",
        "return true;",
        (),
        "What is read then lies outside the tuple or the page, mostly in the next buffer, and becomes a hint. Other"
        " guards stop most of it; what is left only a tool that watches each access would show.",
    ),
    Mutation(
        "key beyond its tuple",
        "src/index/btree_tuple.c",
        "if (off >= size || VARATT_IS_EXTERNAL(tuple + off) ||",
        "if (",
        (),
        "What is read then lies outside the tuple or the page, mostly in the next buffer, and becomes a hint. Other"
        " guards stop most of it; what is left only a tool that watches each access would show.",
    ),
    Mutation(
        "tuple outside the page",
        "src/index/index_page.h",
        "ItemIdGetOffset(iid) + length > ((PageHeader) page)->pd_special ||",
        "",
        (),
        "What is read then lies outside the tuple or the page, mostly in the next buffer, and becomes a hint. Other"
        " guards stop most of it; what is left only a tool that watches each access would show.",
    ),
    Mutation(
        "page that is no leaf",
        "src/index/btree_leaf.c",
        "if (!P_ISLEAF(opaque) || P_IGNORE(opaque) || P_ISMETA(opaque) ||",
        "if (",
        (),
        "What is no leaf, or a leaf that was deleted, is read as one, and becomes a hint.",
    ),
    Mutation(
        "leaf beyond the end",
        "src/stream/page_read.c",
        "if (block >= RelationGetNumberOfBlocksInFork(rel, fork))\n\t\treturn false;",
        "",
        (
            HAZARDS + "test_damaged_leaf_that_stock_does_not_reach_is_no_error",
            MUTANTS + "test_damaged_links_and_flags_are_no_error",
        ),
        "A damaged link to a page that does not exist makes one, or is an error that stock does not reach.",
    ),
    Mutation(
        "heap block beyond the end",
        "src/stream/window_ring.c",
        "if (block >= window->nblocks)\n\t\t\treturn;",
        "",
        (
            HAZARDS + "test_damaged_leaf_that_stock_does_not_reach_is_no_error",
            MUTANTS + "test_entries_beyond_the_table_are_no_error",
        ),
        "An entry that points beyond the table is an error before the scan comes to it.",
    ),
    # Index-only scans
    Mutation(
        "all pages visible",
        "src/scan/fetch.c",
        "result = HeapAheadAllVisible(ahead, block, vm_buffer);",
        "result = HeapAheadAllVisible(ahead, block, vm_buffer) || true;",
        (MUTANTS + "test_index_only_scans_ask_the_map",),
        "An index-only scan that looks ahead returns rows that are not visible.",
    ),
    Mutation(
        "names not padded",
        "src/scan/next_row.c",
        "namestrcpy(name, DatumGetCString(slot->tts_values[column]));\n\t\tslot->tts_values[column] = NameGetDatum(name);",
        "(void) name;",
        (MUTANTS + "test_names_are_padded",),
        "A value of type name is read beyond its end.",
    ),
    # Nested loops: what may not run early
    Mutation(
        "volatile functions early",
        "src/join/harmless.c",
        "return volatility == PROVOLATILE_IMMUTABLE ||",
        "return true ||",
        (JOIN_HAZARDS + "test_no_effect_ahead_of_time",),
        "A sequence of the outer side is ahead of the rows, and a setting is read before it is set.",
    ),
    Mutation(
        "functions of others early",
        "src/join/harmless.c",
        "if (function >= FirstNormalObjectId || !is_plain(result) ||",
        "if (!is_plain(result) ||",
        (JOIN_HAZARDS + "test_no_effect_ahead_of_time",),
        "A function that says it is immutable raises notices for rows that nobody asks for.",
    ),
    Mutation(
        "settings that change, between two rows",
        "src/join/harmless.c",
        "query->plan_sets_nothing = !is_harmful_plan(query->top, &search);",
        "query->plan_sets_nothing = true;",
        (JOIN_HAZARDS + "test_settings_that_change_between_two_rows",),
        "Rows that are fetched ahead are filtered by the time zone of an earlier row.",
    ),
    Mutation(
        "errors early",
        "src/join/next_outer.c",
        "node->infallible = ReturnsInfallibly(outer);",
        "node->infallible = true;",
        (JOIN_HAZARDS + "test_no_error_of_a_row_that_is_not_certain",),
        "A query with a LIMIT fails at a row that stock never comes to.",
    ),
    Mutation(
        "errors of keys early",
        "src/join/inner_keys.c",
        "if (inner->shared->infallible)\n\t\t\treturn false;",
        "",
        (JOIN_HAZARDS + "test_no_error_of_a_row_that_is_not_certain",),
        "A key fails of a scan that the join does not come to.",
    ),
    Mutation(
        "subplans in keys",
        "src/join/harmless.c",
        "harmless = search->plans;",
        "harmless = true;",
        (JOIN_HAZARDS + "test_no_effect_ahead_of_time",),
        "A subquery in a key of the inner scan runs for rows that nobody asks for.",
    ),
    Mutation(
        "row locks early",
        "src/join/harmless.c",
        'return "outer side locks rows";',
        "return NULL;",
        (JOIN_ENDS + "test_reasons",),
        "Rows are locked that nobody asks for. Nodes that are not listed are refused in any case, so that only"
        " the reason tells.",
    ),
    Mutation(
        "changes early",
        "src/join/harmless.c",
        'return "outer side changes data";',
        "return NULL;",
        (JOIN_ENDS + "test_reasons",),
        "Rows are changed before the query asks for them. Nodes that are not listed are refused in any case,"
        " so that only the reason tells.",
    ),
    Mutation(
        "what the statement changes is read early",
        "src/join/harmless.c",
        'search->refusal = "outer side reads what the statement changes";',
        ";",
        (JOIN_HAZARDS + "test_changed_tables", JOIN_ENDS + "test_reasons"),
        "Pages are pruned before the row versions of earlier rows are put there, which then lie elsewhere.",
    ),
    Mutation(
        "serializable transactions",
        "src/join/next_outer.c",
        "if (IsolationIsSerializable())",
        "if (false)",
        (JOIN_HAZARDS + "test_serializable",),
        "Predicate locks are taken on rows that nobody asks for.",
    ),
    # Nested loops: which rows are certain
    Mutation(
        "rows certain below EXISTS",
        "src/exec/rows_wanted.c",
        "return (RowBounds) {.may_stop = !subplan->useHashTable};",
        "return (RowBounds) {0};",
        (JOIN_HAZARDS + "test_what_is_left_early_does_not_search_on",),
        "A filtered outer side is searched for rows that EXISTS does not need, and may fail there.",
    ),
    Mutation(
        "rows certain above a single match",
        "src/exec/rows_wanted.c",
        "bounds->may_stop |= stops_at_match(&((NestLoopState *) parent)->js);",
        "",
        (JOIN_HAZARDS + "test_what_is_left_early_does_not_search_on",),
        "The same on the inner side of a semijoin.",
    ),
    Mutation(
        "rows certain of both sides of a merge join",
        "src/exec/rows_wanted.c",
        "\t\tdefault:\n\t\t\tbounds->may_stop = true;\n\t}\n}",
        "\t\tdefault:\n\t\t\tbreak;\n\t}\n}",
        (JOIN_HAZARDS + "test_what_is_left_early_does_not_search_on",),
        "The same where the other side of a merge join ends first.",
    ),
    Mutation(
        "rows certain before a hash table is built",
        "src/exec/rows_wanted.c",
        "if (gate->join->hj_HashTable == NULL)\n\t\t\treturn 0;",
        ";",
        (JOIN_HAZARDS + "test_no_error_of_a_row_that_is_not_certain",),
        "A hash join whose inner side is empty fails at the second row of its outer side.",
    ),
    Mutation(
        "rows that a join above holds",
        "src/exec/rows_wanted.c",
        "held += join->rows_held;",
        "",
        (NO_HARM + "test_no_error_of_rows_that_a_node_does_not_ask_for",),
        "Each join of a chain takes all rows that a LIMIT still wants for certain, and fails beyond it.",
    ),
    Mutation(
        "CTEs are read to the end",
        "src/exec/takeover.c",
        ".may_stop = bms_is_member(id, walk->stopped_ctes),",
        "",
        (NO_HARM + "test_no_search_for_the_next_row",),
        "A recursion without an end goes on below EXISTS.",
    ),
    Mutation(
        "scans that may be left look far ahead",
        "src/scan/fetch.c",
        "if (uncertain)\n\t\tdistance =",
        "if (false)\n\t\tdistance =",
        (NO_HARM + "test_no_read_of_what_a_node_does_not_ask_for",),
        "The inner scan of EXISTS reads four times as many pages as it uses.",
    ),
    Mutation(
        "types of users compute",
        "src/join/harmless.c",
        "return type >= FirstNormalObjectId &&\n\t\t\t\tget_typtype(type) == TYPTYPE_ENUM;",
        "return true;",
        (NO_HARM + "test_no_effect_of_rows_that_are_not_come_to", NO_HARM + "test_effects_come_in_order"),
        "A function that checks a domain calls nextval() early.",
    ),
    Mutation(
        "rows certain of a portal",
        "src/exec/rows_wanted.c",
        "certain = bounds->portal == PORTAL_STOPS ? 0 :\n\t\t\tMin(certain, rows_of_run(taken->query));",
        ";",
        (
            JOIN_HAZARDS + "test_settings_that_change_between_two_fetches",
            JOIN_HAZARDS + "test_time_of_a_statement_that_changes_between_two_fetches",
        ),
        "Rows that are fetched ahead are filtered by the time zone of the FETCH before.",
    ),
    Mutation(
        "uncertain rows without end",
        "src/join/next_outer.c",
        "*more = certain || (!node->search_stopped && NextRowIsKnown(outer));",
        "*more = true;",
        (NO_HARM + "test_no_search_for_the_next_row",),
        "A dead tail of a table is read to its end for a row that the query does not need.",
    ),
    Mutation(
        "pages beyond what can be asked for",
        "src/lookup/lookup.c",
        "lookup->most_blocks = Min(most_blocks, LOOKUP_MAX_BLOCKS);",
        "lookup->most_blocks = LOOKUP_MAX_BLOCKS;",
        (NO_HARM + "test_no_read_of_what_a_node_does_not_ask_for",),
        "LATERAL (... LIMIT 1) has ten times as many pages read as it needs.",
    ),
    Mutation(
        "unused pages not counted",
        "src/lookup/lookup.c",
        "lookup->shared->counters.blocks_unused += left;",
        "",
        (),
        "What is read ahead for a row lies on the way of its scan. Only pages that were evicted in between are unused.",
    ),
    # Nested loops: the ring
    Mutation(
        "rows of the round before",
        "src/join/next_outer.c",
        "node->begun_again = true;",
        "",
        (JOIN_ENDS + "test_a_join_that_is_begun_again",),
        "A join that is begun again returns rows of its last round.",
    ),
    Mutation(
        "pins of the rows ahead",
        "src/join/rows_ahead.c",
        "ExecMaterializeSlot(row->slot);",
        "",
        (JOIN_HAZARDS + "test_idle_portal_pins_what_stock_pins",),
        "An idle cursor pins the pages of all rows ahead.",
    ),
    Mutation(
        "memory without bound",
        "src/join/rows_ahead.c",
        "rows->used < rows->bytes",
        "true",
        (JOIN_HAZARDS + "test_wide_rows",),
        "The rows ahead take more than their share of work_mem.",
    ),
    Mutation(
        "far beyond a LIMIT",
        "src/join/next_outer.c",
        "rows = Min(rows, (int64) node->handed_out + FIRST_ROWS);",
        "",
        (),
        "The first row comes later. Rows that may be for nothing have a bound of their own.",
    ),
    Mutation(
        "search beyond a LIMIT",
        "src/join/next_outer.c",
        "wanted / node->most_returned - 1;",
        "MAX_ROWS;",
        (),
        "The average of rows that the outer rows returned bounds the rows ahead almost as tightly.",
    ),
    Mutation(
        "LIMIT above Gather",
        "src/exec/rows_wanted.c",
        "case T_GatherState:\t\t/* what the leader",
        "case T_GroupState:\t\t/* what the leader",
        (JOIN_HAZARDS + "test_limit_above_gather",),
        "What the leader executes of a parallel plan reads beyond a LIMIT.",
    ),
    # Nested loops: what the inner side will read
    Mutation(
        "parameters not set back",
        "src/join/outer_values.c",
        "values->params[values->values[i].paramno] = values->values[i].saved;",
        ";",
        (),
        "The server sets them before it uses them, for each outer row; but a node between them might not.",
    ),
    Mutation(
        "reads that are not owed",
        "src/lookup/lookup.c",
        "*(is_index ? &lookup->index_owed : &lookup->heap_owed) += 1;",
        "",
        (JOIN_HAZARDS + "test_reads_stay_at_the_inner_side",),
        "What was read ahead is counted as found.",
    ),
    # The policies of nested loops and of leaf pages; that of index scans is mutated in test_policy.py
    *(
        Mutation(
            f"join policy: {name}",
            "src/join/policy.c",
            old,
            new,
            (WALKS + "[join]",),
            "The policy breaks its word.",
        )
        for name, old, new in (
            ("hits do not end it", "policy->judged_reads < LEAST_READS", "policy->judged_reads < 0"),
            ("reads are not timed again", "policy->clock.reads >= policy->clock.granted", "false"),
            ("the kernel is not noticed", "policy->neighbours >= policy->blocks / 4 * 3", "false"),
            ("slow reads never suffice", "&& more_wanted)", "&& more_wanted && policy->idle_rows)"),
            (
                "an empty ring is kept",
                "JoinPolicyEnded(JoinPolicy *policy)\n{\n\tstart_timing(policy);",
                "JoinPolicyEnded(JoinPolicy *policy)\n{",
            ),
            (
                "the distance does not grow",
                "Min(policy->distance * 2, policy->max_distance)",
                "Min(policy->distance, policy->max_distance)",
            ),
            (
                "the distance exceeds the ring",
                "Min(policy->distance * 2, policy->max_distance)",
                "policy->distance * 2",
            ),
            ("forbidden, and done", "if (!policy->forbidden)", "if (true)"),
            (
                "useless, and kept",
                "policy->mode >= JOIN_AHEAD)\n\t\tstart_timing(policy);",
                "false)\n\t\tstart_timing(policy);",
            ),
            (
                "a way that the table does not have",
                "\tpolicy->mode = JOIN_ENDING;\n\tReadClockRest",
                "\tpolicy->mode = JOIN_WATCH;\n\tReadClockRest",
            ),
        )
    ),
    *(
        Mutation(
            f"leaf policy: {name}",
            "src/scan/leaf_policy.c",
            old,
            new,
            (WALKS + "[leaf]",),
            "The policy breaks its word.",
        )
        for name, old, new in (
            ("hits do not end it", "policy->hits_in_row >= HITS_TO_STOP", "false"),
            ("fast probes do not end it", "if (read_us < SLOW_READ_US)\n\t\tstop(policy, true);\n\telse", ""),
            ("reads are not timed again", "policy->clock.reads < policy->clock.granted", "true"),
            ("no rest", "\tif (rests)\n", "\tif (false)\n"),
            ("a rest without end", "policy->clock.rest--;", ";"),
            ("slow reads never suffice", "policy->sampled_us >= SLOW_READ_US * policy->samples", "false"),
            ("the distance is not earned", "2 * policy->visited", "3 * policy->visited"),
            ("the distance begins at 1", "#define MIN_DISTANCE 4", "#define MIN_DISTANCE 1"),
            ("direct reads are probed", "if (policy->forced || policy->direct)", "if (policy->forced)"),
            (
                "forced, and not done",
                "\tif (policy->forced)\n\t\treturn;\n\tpolicy->mode = LEAF_WATCH;",
                "\tpolicy->mode = LEAF_WATCH;",
            ),
            (
                "a way that the table does not have",
                "\t\tstart_timing(policy);\n\tpolicy->in_order",
                "\t\tpolicy->mode = LEAF_WATCH;\n\tpolicy->in_order",
            ),
        )
    ),
    *(
        Mutation(
            f"clock: {name}", "src/exec/read_clock.h", old, new, (WALKS,), "All policies break their word."
        )
        for name, old, new in (
            ("it never rests", "clock->rest = clock->last_rest =\n", "clock->last_rest =\n"),
            ("it never runs again", "\t\tclock->rest--;", "\t\t;"),
            (
                "rests without bound",
                "return Min(Max(number * 2, least), most);",
                "return Max(number * 2, least);",
            ),
            ("useless look-ahead without bound", "Min(wanted * 2, SLOW_READS_MAX)", "wanted * 2"),
            (
                "what is useless is not noticed",
                "bool\t\tuseless = unused > MAX_UNUSED * used;",
                "bool\t\tuseless = unused > 100 * MAX_UNUSED * used;",
            ),
        )
    ),
    Mutation(
        "scans that begin later",
        "src/join/inner_side.c",
        "\tif (side->executes)\n\t\ttake_scan(scan);",
        "",
        (JOIN_SIDES + "test_reads_stay_at_their_scan",),
        "What was read ahead in partitions but the first is counted as found.",
    ),
    Mutation(
        "partitions that the row does not select",
        "src/join/inner_side.c",
        "side->prunes = PruningIsDone(side->append);",
        "side->prunes = false;",
        (JOIN_SIDES + "test_what_is_read_ahead_is_what_is_needed",),
        "Pages of all partitions are read ahead for each row.",
    ),
    Mutation(
        "partitions found by functions of others",
        "src/join/pruning.c",
        "if (function >= FirstNormalObjectId)",
        "if (false)",
        (JOIN_SIDES + "test_no_effect_ahead_of_time",),
        "The operator class of a partitioned table raises notices for rows that nobody asks for.",
    ),
    Mutation(
        "partitions found by values that may fail",
        "src/join/pruning.c",
        "*infallible &= IsInfallible(lfirst(lc));",
        "",
        (JOIN_SIDES + "test_no_effect_ahead_of_time",),
        "A query with a LIMIT fails at a row that stock never comes to.",
    ),
    Mutation(
        "partitions found by what is not computed",
        "src/join/inner_side.c",
        "if (!OuterValuesKnow(values, side->params))",
        "if (false)",
        (JOIN_SIDES + "test_no_effect_ahead_of_time",),
        "A subquery that selects partitions is executed before its value is asked for.",
    ),
    Mutation(
        "partitions found by long values",
        "src/join/inner_side.c",
        "if (!OuterValuesAreToasted(values))",
        "if (true)",
        (JOIN_SIDES + "test_joins_count_as_stock",),
        "Pages of a TOAST table are read twice for each row.",
    ),
    Mutation(
        "hash codes of another type",
        "src/index/hash_lookup.c",
        "keys[0].sk_subtype, keys[0].sk_subtype,",
        "type, type,",
        (JOIN_SIDES + "test_buckets_of_the_keys_only_are_read",),
        "Buckets are looked for by a hash code that is not the key's, or not at all.",
    ),
    Mutation(
        "buckets of the first group only",
        "src/index/hash_lookup.c",
        "spares = meta->hashm_spares[phase];",
        "spares = 0;",
        (JOIN_SIDES + "test_buckets_of_the_keys_only_are_read",),
        "Pages that are not the key's bucket are read ahead.",
    ),
    Mutation(
        "buckets that were split",
        "src/index/hash_lookup.c",
        "opaque->hasho_prevblkno <= meta->hashm_maxbucket &&",
        "",
        (),
        "The entries of the key may have moved to another bucket: nothing is read ahead for it, or other entries with"
        " its hash code are, which are its own.",
    ),
    Mutation(
        "entries of a damaged bucket",
        "src/index/hash_lookup.c",
        "PageGetMaxOffsetNumber(page) <= MaxIndexTuplesPerPage;",
        "true;",
        (),
        "Of a page that the server has verified, line pointers lie within the page, however many it says there are;"
        " each is checked before it is followed.",
    ),
    # Where nothing but the cost changes
    Mutation(
        "continue a HOT chain",
        "src/scan/page_rows.c",
        "scan->xs_heap_continue = false;",
        ";",
        (),
        "With an MVCC snapshot, the only kind that is served, the flag is never set, and index_getnext_tid()"
        " asserts that; it is cleared so that the code holds by itself.",
    ),
    Mutation(
        "scan not where it was expected",
        "src/scan/entries_ahead.c",
        "position.current == ahead->current + step * steps;",
        "true;",
        (),
        "After a restored mark or a rescan, hints are of the wrong entries: reads for nothing. The scan itself"
        " is never moved, so what it returns is right.",
    ),
    Mutation(
        "turned round",
        "src/scan/entries_ahead.c",
        "bool\t\texpected = dir == ahead->dir && !anew;",
        "bool\t\texpected = !anew;",
        (),
        "The same after a change of direction.",
    ),
    # Estimates, and the limit to their rate
    Mutation(
        "sleep through a cancel",
        "src/stream/read_rate.c",
        "WL_LATCH_SET | WL_TIMEOUT",
        "WL_TIMEOUT",
        ("test/python/test_read_rate.py::test_cancel",),
        "Who waits for the rate hears of a cancel only when the wait is over.",
    ),
    Mutation(
        "a batch granted at a higher rate is paid for at the lower one",
        "src/stream/throttle.h",
        "Max(rate, throttle->rate)",
        "rate",
        ("test/python/test_read_rate.py::test_rate_changes",),
        "After a limit was lowered, the next function waits for hours.",
    ),
    *(
        Mutation(
            f"{method}: any special area",
            f"src/inspect/estimate_{method}.c",
            f"!IndexPageHasSpecial(page, sizeof({area}))",
            "false",
            (f"test/python/test_estimate_corruption.py::test_misleading_pages[d_{method}]",),
            "The flags of a page of another kind are read from where its items, or another page, lie.",
        )
        for method, area in (
            ("btree", "BTPageOpaqueData"),
            ("hash", "HashPageOpaqueData"),
            ("gist", "GISTPageOpaqueData"),
            ("gin", "GinPageOpaqueData"),
        )
    ),
    Mutation(
        "errors are added",
        "src/inspect/estimate_btree.c",
        "hypot(bytes.high - bytes.value, model)",
        "bytes.high - bytes.value + model",
        ("test/python/test_estimate_coverage.py::test_bounds_on_both_sides",),
        "More than 97 % of the intervals of the size after REINDEX hold it.",
    ),
    Mutation(
        "no longer towards the tail",
        "src/inspect/interval.c",
        "Max(tail, 0)",
        "0",
        ("test/python/test_estimate_interval.py::test_coverage_of_shapes",),
        "Few dense pages are missed by far more than 5 % of the intervals.",
    ),
    Mutation(
        "upper levels end at the floor",
        "src/inspect/rebuild.c",
        "floor(entries) + 1 :",
        "floor(entries) :",
        ("test/python/test_estimate_coverage.py::test_coverage[keys of 1,920 bytes]",),
        "The size after REINDEX is a third too large if keys are long.",
    ),
    Mutation(
        "keys on two leaves stay two",
        "src/inspect/estimate_btree.c",
        "(1 - joined) *",
        "1 *",
        ("test/python/test_estimate_coverage.py::test_coverage[long keys on two leaves]",),
        "The lower bound of the size after REINDEX is above it.",
    ),
    Mutation(
        "empty buckets are a gain",
        "src/inspect/estimate_hash.c",
        "return 1 + buckets + overflow + Max(maps, 1);",
        "return 1 + Min(buckets, state->buckets_now) + overflow + Max(maps, 1);",
        ("test/python/test_estimate.py::test_bloat_of_hash",),
        "index_bloat() promises what a build allocates again.",
    ),
    # Leaf pages read ahead
    Mutation(
        "read past the range",
        "src/index/btree_children.c",
        "						 &failed) ||\n		!failed;",
        "						 &failed) ||\n		true;",
        (PAGES + "test_no_leaf_page_beyond_the_range_is_read",),
        "All leaf pages to the end of the index are read for a scan of a few.",
    ),
    Mutation(
        "read past a LIMIT",
        "src/scan/leaves_ahead.c",
        "	if (rows < PG_INT64_MAX)",
        "	if (false)",
        (PAGES + "test_a_limit_bounds_what_is_read",),
        "Leaf pages are read that no row of the LIMIT can come from.",
    ),
    Mutation(
        "read leaf pages at once",
        "src/scan/leaves_ahead.c",
        "#define LEAVES_BEFORE 2",
        "#define LEAVES_BEFORE 0",
        (HAZARDS + "test_array_scans_abandoned_one_after_the_other_stay_on_their_pages",),
        "Scans that are left on their first leaf page have others read for nothing.",
    ),
    Mutation(
        "count leaf pages twice",
        "src/scan/leaves_ahead.c",
        "	/* they are counted when the scan comes there */\n	(void) UncountSince(index, &before);",
        "",
        (PAGES + "test_random_queries_are_as_stock",),
        "EXPLAIN and pg_statio_* show each leaf page as a read and a hit.",
    ),
    Mutation(
        "count leaf pages as hits",
        "src/scan/leaves_ahead.c",
        "	SettleHits(leaves->index, &all, &step->before);",
        "",
        (PAGES + "test_leaf_pages_read_ahead_count_as_read",),
        "EXPLAIN shows a cold index scan as one that found its leaf pages in shared buffers.",
    ),
    Mutation(
        "search once for a bitmap",
        "src/scan/bitmap_scan.c",
        "		(so->numArrayKeys > 0 && LookaheadBTreeSearchesAgain(scan));",
        "		false;",
        (PAGES + "test_random_queries_are_as_stock",),
        "A bitmap index scan of array keys finds the rows of its first search only.",
    ),
    Mutation(
        "wait for a leaf page by the server's code",
        "src/scan/leaves_ahead.c",
        "	if (first != NULL && !first->is_probe && dir == leaves->dir)\n		PageReadAbandon(leaves->index, &first->page);",
        "",
        (PAGES + "test_waits_for_leaf_pages_are_timed",),
        "The I/O times of EXPLAIN and pg_stat_statements leave out the waits for leaf pages.",
    ),
    Mutation(
        "wait for computed keys",
        "src/scan/bitmap_scan.c",
        "		ExecReScan(plan_state);\n		node->prepared = false;",
        "		return false;",
        (PAGES + "test_no_leaf_page_beyond_the_range_is_read[bitmap, or of computed keys]",),
        "Below a BitmapOr of a generic plan, each scan waits for its first leaf page.",
    ),
    Mutation(
        "keys of the outer row before",
        "src/scan/bitmap_scan.c",
        "(!state->biss_RuntimeKeysReady || plan_state->chgParam != NULL)",
        "!state->biss_RuntimeKeysReady",
        (PAGES + "test_no_leaf_page_beyond_the_range_is_read[bitmap, or of outer rows]",),
        "A scan below a BitmapOr reads leaf pages for the keys of the outer row before.",
    ),
    Mutation(
        "compute keys out of turn",
        "src/scan/bitmap_scan.c",
        "after_another |= next->after_another",
        "after_another = next->after_another",
        (PAGES + "test_the_first_key_that_fails_is_stocks",),
        "A query fails with the error of another condition than by stock.",
    ),
    Mutation(
        "execute a plan for keys early",
        "src/scan/bitmap_scan.c",
        "			if (plan_state->state->es_param_exec_vals[param].execPlan != NULL)\n				return false;",
        "			;",
        (PAGES + "test_keys_computed_early_are_as_stock",),
        "EXPLAIN shows the work of an InitPlan at another scan than stock does.",
    ),
    Mutation(
        "keep the parent pinned",
        "src/scan/leaves_ahead.c",
        "	if (BufferIsValid(buffer))\n		ReleaseBuffer(buffer);",
        "",
        (PAGES + "test_random_queries_are_as_stock",),
        "Pages of level 1 stay pinned until the query ends, and the server warns of it.",
    ),
    Mutation(
        "one parent at a time",
        "src/scan/leaves_ahead.c",
        "	list->has_parents = list->listed && list->children.narrays > 0 &&",
        "	list->has_parents = false &&",
        (PAGES + "test_parents_of_array_keys_are_read_ahead",),
        "A cold bitmap scan of many keys waits for each page of level 1.",
    ),
    Mutation(
        "believe any parent",
        "src/index/btree_children.c",
        "		!BTreeTupleFits(itup, RelationGetDescr(index), natts))",
        "		false)",
        (),
        "A damaged length in a page of level 1 leads out of the page; only by chance does that crash.",
    ),
]
