"""Fuzzing of all that reads pages from disk, with coverage and sanitizers.

    python tools/fuzz.py [--minutes 10] [--keep] [TARGET ...]

The extension is built by clang with AddressSanitizer, UndefinedBehaviorSanitizer and libFuzzer's
counters, together with test/modules/fuzz_pages.c, and installed into a copy of the embedded server.
For each target a backend of that server runs libFuzzer: pages that it invents take the place
of a relation's pages in shared buffers, and a statement reads them.  Whatever ends the backend is a
finding; the page that did it is kept, and named.

It starts from the corpus, test/fuzz/TARGET.tar.xz, and from the relation's own pages.  With --keep the
inputs that were found to reach further code are added to the corpus.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg

from matrix import BUILD, FLAGS_OF_GCC, ROOT, BuildFailed, build, newest_clang, servers_directory
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.home import Home
from pg_lookahead.server.installation import ClusterError, Installation
from sanitize import copy_of_server, library, put_in_front

CORPUS = ROOT / "test" / "fuzz"
MODULE = ROOT / "test" / "modules" / "fuzz_pages.c"
FINDINGS = BUILD.with_name("fuzz")

TABLES = """
CREATE EXTENSION pg_lookahead;
CREATE EXTENSION bloom;
CREATE FUNCTION fuzz_pages(regclass, text, text[]) RETURNS int LANGUAGE c AS '$libdir/pg_lookahead';
CREATE TABLE d (id int, few int, list int[], p point) WITH (autovacuum_enabled = off);
INSERT INTO d SELECT i, i % 20, ARRAY[i, i % 9], point(i, i % 100) FROM generate_series(1, 6000) AS i;
CREATE INDEX d_btree ON d (id);
CREATE INDEX d_few ON d (few);
CREATE INDEX d_hash ON d USING hash (few);
CREATE INDEX d_gin ON d USING gin (list);
CREATE INDEX d_gist ON d USING gist (p);
CREATE INDEX d_bloom ON d USING bloom (id, few);
DELETE FROM d WHERE id BETWEEN 1000 AND 2500;
VACUUM (FREEZE) d;
DELETE FROM d WHERE id BETWEEN 3000 AND 3100;
CHECKPOINT;
"""


TARGETS = {
    "btree_page": ("d_btree", ""),
    "btree_page_duplicates": ("d_few", ""),
    "hash_page": ("d_hash", ""),
    "pgstatindex": ("d_btree", "pgstatindex"),
    "pgstathashindex": ("d_hash", "pgstathashindex"),
    "pgstatginindex": ("d_gin", "pgstatginindex"),
    "pgstatbloomindex": ("d_bloom", "pgstatbloomindex"),
    "pgstattuple": ("d", "pgstattuple"),
    "pgstattuple_btree": ("d_btree", "pgstattuple"),
    "pgstattuple_hash": ("d_hash", "pgstattuple"),
    "pgstattuple_gist": ("d_gist", "pgstattuple"),
    "pgstattuple_approx": ("d", "pgstattuple_approx"),
    "estimate_btree": ("d_few", "index_estimate"),
    "estimate_hash": ("d_hash", "index_estimate"),
    "estimate_gin": ("d_gin", "index_estimate"),
    "estimate_gist": ("d_gist", "index_estimate"),
    "estimate_bloom": ("d_bloom", "index_estimate"),
    "estimate_table": ("d", "table_estimate"),
    "bloom_scan": ("d_bloom", "a scan"),
}
"""Whose pages are damaged, and which function reads them; none: what looks at pages ahead of a scan."""


def reading(name: str) -> str | None:
    """Return the statement of a target that reads the pages; None where no statement does."""
    relation, function = TARGETS[name]
    if function == "a scan":
        return "SELECT count(*) FROM d WHERE id = 77 AND few = 17"
    return f"SELECT lookahead.{function}('{relation}'::regclass)" if function else None


SETTINGS = {
    "autovacuum": False,
    "shared_buffers": "64MB",
    "shared_preload_libraries": "pg_lookahead",
    "enable_seqscan": False,
    "max_parallel_workers_per_gather": 0,
    "client_min_messages": "error",
    "log_min_messages": "error",
    "log_min_error_statement": "panic",
}


def fuzzing_server(servers: Path) -> Path:
    """Return the pg_config of a copy of the embedded server with the extension to be fuzzed."""
    compiler = newest_clang()
    machine = platform.machine()
    pg_config = copy_of_server(servers / "fuzzed")
    build(
        "fuzzed",
        pg_config,
        f"CC={compiler}",
        "COPT=-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined -shared-libasan"
        f" -fno-omit-frame-pointer -g -O1 -w {FLAGS_OF_GCC}",
        f"SHLIB_LINK={library(f'libclang_rt.fuzzer_no_main-{machine}.a', compiler)}"
        " -lstdc++ -lm -Wl,-Bsymbolic",
        more=[MODULE],
    )
    put_in_front(pg_config.with_name("postgres"), [library(f"libclang_rt.asan-{machine}.so", compiler)])
    return pg_config


def pages(cluster: Cluster, relation: str) -> list[bytes]:
    """Return the relation's own pages, each as an input."""
    with cluster.connect() as conn:
        row = conn.execute("SELECT pg_relation_filepath(%s)", [relation]).fetchone()
    assert row is not None
    data = (cluster.data / row[0]).read_bytes()
    count = min(len(data) // 8192, 255)
    return [bytes([i]) + data[i * 8192 : (i + 1) * 8192] for i in range(count)]


def fuzz(cluster: Cluster, name: str, seconds: int, keep: bool) -> Outcome:
    """Fuzz one target."""
    relation, _ = TARGETS[name]
    home = Home.of_this_process()
    place = home.make_directory(f"fuzz-{name}")
    seeds, grown, findings = (place / part for part in ("seeds", "grown", "findings"))
    for directory in (place, seeds, grown, findings):
        directory.mkdir(exist_ok=True)
        home.make_owned(directory)
    own = pages(cluster, relation)
    for i in sorted({*range(0, len(own), max(1, len(own) // 12)), 0, len(own) - 1}):
        (seeds / f"page-{i}").write_bytes(own[i])
    kept = CORPUS / f"{name}.tar.xz"
    if kept.exists():
        shutil.unpack_archive(kept, grown)
    subprocess.run(["chmod", "-R", "a+rX", seeds, grown], check=True)
    options = ["-max_len=8193", "-rss_limit_mb=0", "-timeout=20", "-print_final_stats=1", "-seed=1"]
    options += [f"-max_total_time={seconds}", f"-artifact_prefix={findings}/", str(grown), str(seeds)]
    # libFuzzer ends the process, and with it the connection, in any case.
    with suppress(psycopg.OperationalError), cluster.connect() as conn:
        arguments = [relation, reading(name), options]
        conn.execute("SELECT fuzz_pages(%s::regclass, %s, %s)", arguments)
    FINDINGS.mkdir(parents=True, exist_ok=True)
    found = [Path(shutil.copy(file, FINDINGS / f"{name}-{file.name}")) for file in findings.iterdir()]
    done = re.search(r"^Done (\d+) runs.*$", cluster.log, re.M)
    if done and not found and keep:
        CORPUS.mkdir(exist_ok=True)
        with tarfile.open(kept, "w:xz") as archive:
            for file in sorted(grown.iterdir()):
                archive.add(file, file.name, filter=without_owner)
    return Outcome(done[0] if done else "", found)


def without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member of an archive without its owner and time, so that equal files make equal archives."""
    return member.replace(uid=0, gid=0, uname="", gname="", mtime=0, mode=0o644, deep=False)


@dataclass(frozen=True)
class Outcome:
    """What became of a target.

    done: what libFuzzer says at its end; empty if it did not come to it
    found: the inputs that it ended with"""

    done: str
    found: Sequence[Path]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make fuzz FUZZ=...", allow_abbrev=False)
    parser.add_argument("--minutes", type=float, default=10, help="for each target; default: %(default)s")
    parser.add_argument("--keep", action="store_true", help="add what reaches new code to the corpus")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; default: all")
    options = parser.parse_args(arguments)
    unknown = set(options.targets) - set(TARGETS)
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    failed = False
    try:
        with servers_directory(ROOT / "build") as servers:
            pg_config = fuzzing_server(servers)
            home = Home.of_this_process()
            home.template(home.reachable(Installation.find(pg_config)), ())  # once for all

            def of_own_server(name: str) -> Outcome:
                with Cluster(pg_config=pg_config, settings=SETTINGS, name=f"fuzz-{name}") as cluster:
                    with cluster.connect() as conn:
                        for statement in TABLES.split(";\n"):
                            conn.execute(statement.encode())
                    outcome = fuzz(cluster, name, round(options.minutes * 60), options.keep)
                    (BUILD / "logs" / f"fuzz-{name}.log").write_text(cluster.log)
                return outcome

            names = options.targets or list(TARGETS)
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                for name, outcome in zip(names, pool.map(of_own_server, names), strict=True):
                    if outcome.done and not outcome.found:
                        print(f"{name}: nothing found.  {outcome.done}", flush=True)
                        continue
                    failed = True
                    inputs = " ".join(str(file.relative_to(ROOT)) for file in outcome.found)
                    log = (BUILD / "logs" / f"fuzz-{name}.log").relative_to(ROOT)
                    print(f"{name}: FAILED ({inputs or 'no input was kept'}); see {log}", flush=True)
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"{usage.ru_utime + usage.ru_stime:.0f} s of processor time in all")
    except (BuildFailed, ClusterError) as error:
        print(f"pg_lookahead: {error}", file=sys.stderr)
        return 2
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
