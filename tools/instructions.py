"""Count the instructions that cached index scans and writes take, with the library and without it.

    .venv/bin/python -I tools/instructions.py [CASE ...] [--show FUNCTIONS]

Each case is a prepared statement that is executed several times in a single-user server under callgrind
(valgrind): without the library, with look-ahead off, on, and forced though nothing is to be read.  The
execution that takes the median is printed, the first ones left out.  Equal runs differ by far less than times
do, so that a busy machine does not matter.  --show also prints the functions whose instructions differ most.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pg_lookahead.server.cluster import Cluster, ClusterError
from pg_lookahead.server.home import Home

TABLES = """
CREATE EXTENSION pg_prewarm;
CREATE TABLE ordered AS SELECT i AS id, i AS k, i % 100 AS v, repeat('x', 40) AS pad
    FROM generate_series(1, 20000) AS i;
CREATE TABLE scattered AS SELECT i AS id, (i::bigint * 7919 % 20000)::int AS k, i % 100 AS v,
    repeat('x', 40) AS pad FROM generate_series(1, 20000) AS i;
ALTER TABLE ordered ADD PRIMARY KEY (id);
CREATE INDEX ordered_k ON ordered (k);
CREATE INDEX scattered_k ON scattered (k);
CREATE INDEX scattered_k_v ON scattered (k) INCLUDE (v);
CREATE INDEX scattered_hash ON scattered USING hash (id);
CREATE TABLE written (id uuid PRIMARY KEY, k int, pad text);
CREATE INDEX written_k ON written (k);
INSERT INTO written SELECT md5(i::text)::uuid, i * 7919 % 20000, 'x' FROM generate_series(1, 20000) AS i;
CREATE TABLE parent (id int PRIMARY KEY, pad text);
INSERT INTO parent SELECT i, 'x' FROM generate_series(1, 20000) AS i;
CREATE TABLE child (k int REFERENCES parent ON UPDATE CASCADE, other int REFERENCES ordered, pad text);
CREATE INDEX child_k ON child (k);
INSERT INTO child SELECT i, i, 'x' FROM generate_series(1, 20000) AS i;
CREATE TABLE few AS SELECT i * 7 AS id FROM generate_series(1, 200) AS i;
CREATE TABLE chained AS SELECT i AS id, i * 3 % 20000 + 1 AS a, i * 7 % 20000 + 1 AS b,
    i * 11 % 20000 + 1 AS c, i * 13 % 20000 + 1 AS d, i * 17 % 20000 + 1 AS e
    FROM generate_series(1, 20000) AS i;
ALTER TABLE chained ADD PRIMARY KEY (id);
VACUUM (ANALYZE) chained;
VACUUM (ANALYZE) ordered;
VACUUM (ANALYZE) few;
VACUUM (ANALYZE) scattered;
VACUUM (ANALYZE) written;
VACUUM (ANALYZE) parent;
VACUUM (ANALYZE) child;
"""
CASES = {
    "1 row by a unique key": "SELECT pad FROM ordered WHERE id = $1",
    "1 row by a range": "SELECT pad FROM ordered WHERE k BETWEEN $1 AND $1",
    "1 row, hash index": "SELECT pad FROM scattered WHERE id = $1",
    "10 rows, random order": "SELECT max(pad) FROM scattered WHERE k BETWEEN $1 AND $1 + 9",
    "100 rows, random order": "SELECT max(pad) FROM scattered WHERE k BETWEEN $1 AND $1 + 99",
    "100 rows, heap order": "SELECT max(pad) FROM ordered WHERE k BETWEEN $1 AND $1 + 99",
    "100 rows, random order, index-only": "SELECT max(v) FROM scattered WHERE k BETWEEN $1 AND $1 + 99",
    "100 rows, filter": "SELECT max(pad) FROM scattered WHERE k BETWEEN $1 AND $1 + 99 AND v < 9",
    "1 row, 5 joins": "SELECT a.pad, b.pad, c.pad, d.pad, e.pad FROM chained o JOIN ordered a ON a.id = o.a"
    " JOIN ordered b ON b.id = o.b JOIN ordered c ON c.id = o.c JOIN ordered d ON d.id = o.d"
    " JOIN ordered e ON e.id = o.e WHERE o.id = $1",
    "200 rows joined, unique key": "SELECT max(o.pad) FROM few f JOIN ordered o ON o.id = f.id + $1 % 7",
    "200 rows joined, any key": "SELECT max(s.pad) FROM few f JOIN scattered s ON s.k = f.id + $1 % 7",
    "200 rows joined, hash index": "SELECT max(s.pad) FROM few f JOIN scattered s ON s.id = f.id + $1 % 7",
    "1 row inserted": "INSERT INTO written VALUES (gen_random_uuid(), $1, 'x')",
    "100 rows inserted": "INSERT INTO written SELECT gen_random_uuid(), $1 + i, 'x'"
    " FROM generate_series(1, 100) AS i",
    "1 row with foreign keys inserted": "INSERT INTO child VALUES ($1, $1, 'x')",
    "100 rows with foreign keys inserted": "INSERT INTO child SELECT $1 + i, $1 + i, 'x'"
    " FROM generate_series(1, 100) AS i",
    "1 key of a parent changed": "UPDATE parent SET id = -id WHERE id IN ($1 + 9000, -$1 - 9000)",
    "100 rows with foreign keys updated": "UPDATE child SET pad = 'y' WHERE k BETWEEN $1 AND $1 + 99",
    "1 row updated": "UPDATE written SET k = k + 1 WHERE id = md5($1::text)::uuid",
}
UNCOUNTED, EXECUTED = 10, 30
"""Executions of a statement: those before the first one that counts, and all.  The first ones read catalogs,
and after some that read nothing a small statement is left alone (takeover.c)."""

SETTINGS = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_memoize": "off",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "autovacuum": "off",
}
SIDES = {
    "not loaded": {},
    "off": {"shared_preload_libraries": "pg_lookahead", "pg_lookahead.index_scan": "off"},
    "on": {"shared_preload_libraries": "pg_lookahead"},
    "forced": {"shared_preload_libraries": "pg_lookahead", "pg_lookahead.debug_force": "on"},
}


def statements_of(case: str) -> list[str]:
    """Return what is executed for a case, each in one line."""
    executions = [f'EXECUTE "{case}" ({key})' for key in range(7001, 7001 + EXECUTED)]
    return [f'PREPARE "{case}" (int) AS {CASES[case]}', *executions]


CACHE = "SELECT sum(pg_prewarm(oid)) FROM pg_class WHERE relkind IN ('r', 'i')"
"""Executed first, since a page that is read for the first time makes look-ahead watch."""


def counted(cluster: Cluster, cases: list[str], settings: dict[str, str], out: Path) -> list[Counter[str]]:
    """For each case, the instructions of the execution that takes the median, by function.

    Each side changes a copy of the data, so that all of them find the same."""
    home = Home.of_this_process()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(mode=0o777)
    out.chmod(0o777)
    data = out / "data"
    subprocess.run(["cp", "-a", cluster.data, data], check=True)
    statements = [CACHE, *(statement for case in cases for statement in statements_of(case))]
    command = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}/part"]
    command += ["--dump-before=pg_parse_query", "--compress-strings=no", "--compress-pos=no"]
    command += [str(cluster.bindir / "postgres"), "--single", "-D", str(data)]
    for name, value in {**SETTINGS, **settings}.items():
        command += ["-c", f"{name}={value}"]
    done = subprocess.run(
        [*command, "postgres"],
        input="".join(f"{statement}\n" for statement in [*statements, "SELECT 1"]),
        capture_output=True,
        text=True,
        cwd=data,
        **home.as_server(),
    )
    if done.returncode or re.search(r"(?:ERROR|FATAL):", done.stderr):
        raise ClusterError("the single-user server failed", hint=done.stderr[-2000:])
    # Part n + 1 is what was executed between the parser's calls n and n + 1.
    parts = iter([own_instructions(out / f"part.{n + 2}") for n in range(len(statements))])
    next(parts)
    of_cases = [[next(parts) for _ in statements_of(case)] for case in cases]  # PREPARE, and all executions
    return [sorted(of[1 + UNCOUNTED :], key=Counter.total)[(EXECUTED - UNCOUNTED) // 2] for of in of_cases]


def own_instructions(part: Path) -> Counter[str]:
    """Return each function's own instructions in a file of callgrind's."""
    counts: Counter[str] = Counter()
    name, called = "", False
    for line in part.read_text().splitlines():
        if line.startswith("fn="):
            name = line[3:]
        elif line.startswith("calls="):
            called = True  # the next line is what the callee took
        elif line[:1].isdigit():
            if not called:
                counts[name] += int(line.split()[-1])
            called = False
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="words of a case's name; default: all")
    parser.add_argument("--show", type=int, default=0, metavar="FUNCTIONS")
    options = parser.parse_args()
    cases = [case for case in CASES if any(word in case for word in options.cases or [""])]
    if shutil.which("valgrind") is None:
        raise ClusterError("valgrind is not installed")
    with Cluster(settings={"shared_buffers": "128MB"}, name="instructions") as cluster:
        with cluster.connect() as conn:
            for statement in filter(str.strip, TABLES.split(";")):
                conn.execute(statement)
        cluster.stop()
        sides = {
            side: counted(cluster, cases, settings, cluster.socket_dir.parent / "out")
            for side, settings in SIDES.items()
        }
    console = Console(width=120)
    table = Table("", *SIDES, "on / not loaded")
    for i, case in enumerate(cases):
        totals = {side: found[i].total() for side, found in sides.items()}
        ratio = totals["on"] / totals["not loaded"]
        table.add_row(case, *(f"{total:,.0f}" for total in totals.values()), f"{ratio:.4f}")
    console.print(table)
    for i, case in enumerate(cases if options.show else []):
        more = Counter(sides["on"][i])
        more.subtract(sides["not loaded"][i])
        table = Table("function", "more instructions", title=case)
        for name, count in sorted(more.items(), key=lambda item: -abs(item[1]))[: options.show]:
            table.add_row(name, f"{count:+,.0f}")
        console.print(table)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ClusterError as error:
        sys.exit(f"pg_lookahead: {error}")
