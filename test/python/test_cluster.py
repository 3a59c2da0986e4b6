"""The private server: a whole life, several at once, and nothing left however it ends."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import pg_lookahead
from clusters import crash
from command_line import as_here
from conftest import MakeCluster
from pg_lookahead.server import cache, home, reap
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.home import server_user
from pg_lookahead.server.installation import ClusterError, Installation
from queries import run, scalar
from relations import await_true

SECONDS = 120.0


# A life


def test_settings_and_restart(make_cluster: MakeCluster) -> None:
    cluster = make_cluster({"work_mem": "5MB", "autovacuum": False, "application_name": "it's"})
    with cluster.connect() as conn:
        assert scalar(conn, "SHOW work_mem") == "5MB"
        assert scalar(conn, "SHOW autovacuum") == "off"
        assert scalar(conn, "SHOW fsync") == "off"
        assert scalar(conn, "SHOW listen_addresses") == ""
        assert scalar(conn, "SELECT current_user::text") == "postgres"
        assert scalar(conn, "SELECT datcollate FROM pg_database WHERE datname = 'postgres'") == "C"
        assert scalar(conn, "SHOW server_encoding") == "UTF8"
        assert conn.info.server_version // 10000 == cluster.version
    before = cluster.pid
    cluster.restart({"work_mem": None, "fsync": True})
    assert cluster.pid != before
    with cluster.connect() as conn:
        assert scalar(conn, "SHOW work_mem") == "4MB"
        assert scalar(conn, "SHOW fsync") == "on"


def test_socket_path_is_short_and_private(cluster: Cluster) -> None:
    assert len(str(cluster.socket_dir / ".s.PGSQL.5432")) < 100
    assert cluster.socket_dir.stat().st_mode & 0o777 == 0o700


def test_a_setting_that_is_wrong_is_told_from_the_log() -> None:
    cluster = Cluster(settings={"shared_buffers": "much"})
    with pytest.raises(ClusterError, match="shared_buffers"), cluster:
        pass
    assert not cluster.data.exists()


def test_not_running_is_told() -> None:
    cluster = Cluster(name="idle")
    with pytest.raises(ClusterError, match="idle"):
        _ = cluster.pid
    cluster.stop()
    cluster.destroy()
    cluster.destroy()


def test_kill_is_a_crash_and_a_start_recovers(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    with cluster.connect() as conn:
        conn.execute("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS a")
    open_transaction = cluster.connect(autocommit=False)
    open_transaction.execute("INSERT INTO kept VALUES (0)")
    postmaster = cluster.pid
    crash(cluster)
    assert not cluster.running
    assert reap.processes_in(cluster.data) == []
    assert not Path("/proc", str(postmaster)).exists()
    with pytest.raises(psycopg.OperationalError):
        open_transaction.execute("SELECT 1")
    cluster.start()
    assert "not properly shut down" in cluster.log
    with cluster.connect() as conn:
        assert scalar(conn, "SELECT count(*) FROM kept") == 1000


def test_kill_leaves_no_shared_memory(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    segments = reap.shared_memory(reap.processes_in(cluster.data))
    files = [Path(segment) for segment in segments if segment.startswith("/")]
    assert files
    assert all(file.exists() for file in files)
    assert any(segment.startswith("SYSV:") for segment in segments)
    crash(cluster)
    cluster.destroy()
    assert not any(file.exists() for file in files)
    ids = {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}
    assert not ids & {segment.removeprefix("SYSV:") for segment in segments}


def test_a_directory_of_ones_own(short_directory: Path) -> None:
    with Cluster(directory=short_directory / "mine") as cluster:
        assert cluster.data == short_directory / "mine" / "data"
        with cluster.connect() as conn:
            assert scalar(conn, "SELECT 1") == 1
    assert list(short_directory.iterdir()) == []
    (short_directory / "file").touch()
    with pytest.raises(ClusterError, match="not empty"):
        Cluster(directory=short_directory)


# Eviction

BUFFERS = """
SELECT count(*) FROM pg_buffercache
WHERE relfilenode = pg_relation_filenode(%s::regclass)
  AND reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@pytest.mark.parametrize("os_cache", [True, False])
def test_evict_takes_all_forks_out(
    cluster: Cluster, conn: psycopg.Connection[Any], os_cache: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "whole_system", True)
    conn.execute("CREATE EXTENSION pg_buffercache")
    own = "WITH (autovacuum_enabled = off)"  # nobody else reads it
    run(conn, f"CREATE TABLE cached {own} AS SELECT generate_series(1, 100000) AS a", "VACUUM cached")
    conn.execute("SELECT count(*) FROM cached")
    before = scalar(conn, BUFFERS, ["cached"])
    assert before > scalar(conn, "SELECT pg_relation_size('cached') / 8192") > 400
    method = cluster.evict(conn, "cached", os_cache=os_cache)
    assert method in (("drop_caches", "posix_fadvise") if os_cache else ("none",))
    assert scalar(conn, BUFFERS, ["cached"]) == 0
    # Nothing of what was dirty is lost.
    assert scalar(conn, "SELECT count(*) FROM cached") == 100000
    # And others' pages stay.
    assert scalar(conn, BUFFERS, ["pg_class"]) > 0


@pytest.mark.parametrize("whole_system", [False, True])
def test_evict_empties_the_page_cache(
    cluster: Cluster, conn: psycopg.Connection[Any], whole_system: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "whole_system", whole_system)
    if shutil.which("fincore") is None:
        pytest.skip("fincore is not installed")
    conn.execute("CREATE EXTENSION pg_buffercache")
    own = "WITH (autovacuum_enabled = off)"  # nobody else reads it
    conn.execute(f"CREATE TABLE paged {own} AS SELECT generate_series(1, 500000) AS a")
    file = cluster.data / scalar(conn, "SELECT pg_relation_filepath('paged')")

    def resident() -> int:
        command = ["fincore", "--bytes", "--noheadings", "--output", "RES", file]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    conn.execute("CHECKPOINT")
    size = file.stat().st_size
    if resident() < size / 2:
        pytest.skip("the file system does not tell what is cached")
    cluster.evict(conn, "paged")
    assert resident() < size / 100


def test_evict_a_mapped_relation_and_one_without_a_file(
    cluster: Cluster, conn: psycopg.Connection[Any]
) -> None:
    conn.execute("CREATE EXTENSION pg_buffercache")
    cluster.evict(conn, "pg_catalog.pg_proc")
    conn.execute("CREATE VIEW no_file AS SELECT 1")
    with pytest.raises((ClusterError, psycopg.Error)):
        cluster.evict(conn, "no_file")


def test_a_place_of_any_name_will_do() -> None:
    """But for one with a comma, which separates the directories of a server's socket."""
    with tempfile.TemporaryDirectory(prefix="a'b \\\"", dir="/tmp") as base:
        Path(base).chmod(0o755)
        told = "print(cluster.connect().info.host); sys.exit(3)"
        process, data = live(after=told, env={**os.environ, "PG_LOOKAHEAD_TMPDIR": base})
        host, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 3 and host.startswith(base), errors
    assert data.is_relative_to(base) and gone(data)


def test_a_place_with_a_comma_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "_LONGEST_BASE", 1000)
    one = home.Home.__new__(home.Home)
    one.user = None
    for name in ("a b", "a,b"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv("PG_LOOKAHEAD_TMPDIR", str(tmp_path / name))
        if name == "a b":
            assert one._choose_base() == tmp_path / name
    with pytest.raises(ClusterError, match="no comma"):
        one._choose_base()


def test_a_user_without_a_name_is_told_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers may run as a number that no user has."""

    def none(number: int) -> pwd.struct_passwd:
        raise KeyError(number)

    place = tmp_path / ("long" * 20)
    place.mkdir()
    monkeypatch.setenv("PG_LOOKAHEAD_TMPDIR", str(place))
    monkeypatch.setattr(home, "server_user", lambda: None)
    monkeypatch.setattr(pwd, "getpwuid", none)
    with pytest.raises(ClusterError, match="directory that you can enter"):
        home.Home()


# Nothing is left

LIVES = """
    import sys, time
    {as_here}
    from pg_lookahead.server.cluster import Cluster
    from pg_lookahead.server.signals import end_on_signals
    {before}
    with Cluster() as cluster:
        print(cluster.data, flush=True)
        print(cluster.pid, flush=True)
        {after}
"""


@pytest.fixture
def short_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory that the server's user can enter and whose path is short."""
    path = Path("/tmp", f"pg_lookahead_test_{os.getpid()}")
    path.mkdir(mode=0o755)
    user = server_user()
    if user:
        os.chown(path, user.pw_uid, user.pw_gid)
    yield path
    shutil.rmtree(path)


def live(before: str = "", after: str = "time.sleep(600)", **kw: Any) -> tuple[subprocess.Popen[str], Path]:
    """Start a Python process with a server; returns it with the server's data directory."""
    program = textwrap.dedent(LIVES.format(as_here=as_here(), before=before, after=after))
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kw
    )
    assert process.stdout is not None
    data = process.stdout.readline().strip()
    if not data or not process.stdout.readline():
        raise AssertionError(process.communicate()[1])
    return process, Path(data)


def gone(data: Path) -> bool:
    """Whether neither process nor file of a server is left."""
    return not reap.processes_in(data) and not data.parent.parent.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_nothing_left_after_a_signal_that_runs_no_python(number: signal.Signals) -> None:
    process, data = live()
    assert reap.processes_in(data)
    process.send_signal(number)
    assert process.wait(SECONDS) == -number
    await_true(lambda: gone(data), f"nothing to be left in {data}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_left_when_a_tool_ends(number: signal.Signals) -> None:
    process, data = live(before="end_on_signals()")
    process.send_signal(number)
    process.communicate(timeout=SECONDS)
    assert gone(data), "a tool tears down before it ends"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)])
def test_a_signal_is_not_lost_in_a_callback(number: signal.Signals, status: int) -> None:
    """Python drops an exception that is raised in one, as each import has it."""
    struck = f"""
        import signal, weakref
        thing = type("Thing", (), {{}})()
        end = weakref.ref(thing, lambda _: signal.raise_signal({number}))
        del thing
        time.sleep(60)
    """
    process, data = live("end_on_signals()", struck.strip())
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == status and gone(data) and "ignored" not in errors


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    """As nohup ignores SIGHUP, for a run that goes on after a logout."""
    ignore = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); end_on_signals()"
    process, data = live(before=ignore, after="signal.raise_signal(signal.SIGHUP); sys.exit(3)")
    process.communicate(timeout=SECONDS)
    assert process.returncode == 3 and gone(data)


@pytest.mark.parametrize(
    ("after", "status"),
    [("raise RuntimeError('no good')", 1), ("Cluster(name='second').start(); sys.exit(3)", 3)],
)
def test_nothing_left_after_an_exception_or_an_exit_without_stop(after: str, status: int) -> None:
    process, data = live(after=after)
    process.communicate(timeout=SECONDS)
    assert process.returncode == status and gone(data)


def test_a_directory_of_ones_own_is_cleared_too(short_directory: Path) -> None:
    mine = short_directory / "mine"
    own = f"Cluster(directory=Path({str(mine)!r}))"
    after = f"from pathlib import Path; {own}.start(); print(1, flush=True); time.sleep(600)"
    process, data = live(after=after)
    assert process.stdout is not None
    process.stdout.readline()
    assert reap.processes_in(mine)
    process.kill()
    process.wait()
    await_true(lambda: gone(data) and not mine.exists(), "nothing to be left")
    assert not reap.processes_in(mine)


def test_litter_of_a_dead_process_is_cleared_by_the_next() -> None:
    process, data = live()
    watcher = next(
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.read_bytes().split(b"\0")[-3:-1]
        == [str(process.pid).encode(), str(data.parent.parent).encode()]
    )
    os.kill(watcher, signal.SIGKILL)
    process.kill()
    process.wait()
    assert reap.processes_in(data), "nobody has cleared it yet"
    other, other_data = live()
    try:
        assert gone(data)
    finally:
        other.kill()
        other.wait()
    await_true(lambda: gone(other_data), "nothing to be left")


# What lies in the base directory may be anybody's


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A directory for private directories, where there is none yet."""
    path = tmp_path / "base"
    path.mkdir()
    return path


def litter(base: Path) -> Path:
    """The name of a directory of this user's whose process is gone."""
    return base / f"pg_lookahead-{os.getuid()}-4000000000-x"


def test_litter_of_this_user_is_cleared(base: Path) -> None:
    litter(base).mkdir(mode=0o700)
    home._clear_litter(base)
    assert list(base.iterdir()) == []


def test_litter_that_is_swapped_for_a_link_is_not_followed(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By somebody who is quick: a look at the name, as this one, would tell of what was there before."""
    monkeypatch.setattr(Path, "is_symlink", lambda _: False)
    victim = tmp_path / "victim"
    victim.mkdir()
    litter(base).symlink_to(victim)
    home._clear_litter(base)
    assert litter(base).exists() and list(victim.iterdir()) == []


def test_the_lock_of_litter_that_is_a_link_is_not_followed(base: Path, tmp_path: Path) -> None:
    litter(base).mkdir(mode=0o700)
    (litter(base) / "lock").symlink_to(tmp_path / "made")
    home._clear_litter(base)
    assert not (tmp_path / "made").exists() and litter(base).exists()


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_litter_that_others_can_write_to_is_left_alone(base: Path, mode: int) -> None:
    litter(base).mkdir()
    litter(base).chmod(mode)
    home._clear_litter(base)
    assert list(litter(base).iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_litter_and_places_of_other_users_are_left_alone(base: Path) -> None:
    litter(base).mkdir(mode=0o700)
    os.chown(litter(base), 65534, 65534)
    home._clear_litter(base)
    assert list(litter(base).iterdir()) == []
    assert home._is_safe(Path("/var/tmp")) and not home._is_safe(litter(base))
    os.chown(base, 65534, 65534)
    assert not home._is_safe(base)


def test_a_place_where_others_can_rename_is_refused(base: Path) -> None:
    base.chmod(0o777)
    assert not home._is_safe(base)
    base.chmod(0o1777)
    assert home._is_safe(base)


# Users and servers


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run as another")
def test_an_ordinary_user_runs_it(short_directory: Path) -> None:
    """A user that owns nothing, with a copy of the tool and the server that it can read."""
    nobody: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []}
    site = short_directory / "site"
    shutil.copytree(Path(pg_lookahead.__file__).parent, site / "pg_lookahead")
    for package in ("psycopg", "psycopg_binary", "psycopg_binary.libs", "typing_extensions.py"):
        _copy_package(package, site)
    installation = Installation.find()
    embedded = installation.embedded
    if embedded is None:
        pytest.skip("a server other than the embedded one cannot be copied")
    for name in (embedded.name, f"{embedded.name}.libs"):
        shutil.copytree(embedded.with_name(name), site / name)
    subprocess.run(["chmod", "-R", "a+rX", short_directory], check=True)
    program = textwrap.dedent(
        """
        import os
        from pg_lookahead.server.cluster import Cluster
        with Cluster() as cluster, cluster.connect() as conn:
            conn.execute("CREATE EXTENSION pg_buffercache")
            conn.execute("CREATE TABLE t AS SELECT 1 AS a")
            print(os.getuid(), cluster.evict(conn, "t"), cluster.data.stat().st_uid)
        """
    )
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [_python_for_all(), "-c", program], env=environment, cwd="/", capture_output=True, text=True, **nobody
    )
    assert done.returncode == 0, done.stderr
    uid = done.stdout.split()[0]
    assert done.stdout.split() == [uid, "posix_fadvise", uid]


def _copy_package(name: str, site: Path) -> None:
    source = Path(psycopg.__file__).parent.parent / name
    if source.is_dir():
        shutil.copytree(source, site / name)
    elif source.exists():
        shutil.copy(source, site / name)


def _python_for_all() -> str:
    """A Python of this version that an ordinary user may run, or skip."""
    version = f"python3.{sys.version_info.minor}"
    for candidate in (os.path.realpath(sys.executable), f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        try:
            done = subprocess.run([candidate, "-V"], user="nobody", capture_output=True, cwd="/")
        except OSError:
            continue
        if done.returncode == 0:
            return candidate
    pytest.skip(f"no {version} that an ordinary user can run")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's servers run as another")
def test_a_server_out_of_reach_is_copied(short_directory: Path) -> None:
    installation = Installation.find()
    if installation.embedded is None:
        pytest.skip("a server other than the embedded one cannot be copied")
    user = server_user()
    assert user is not None
    with Cluster() as cluster:
        out_of_reach = short_directory / "closed"
        out_of_reach.mkdir(mode=0o700)
        embedded = installation.embedded
        for name in (embedded.name, f"{embedded.name}.libs"):
            if embedded.with_name(name).exists():
                shutil.copytree(embedded.with_name(name), out_of_reach / name)
        found = Installation(
            out_of_reach / embedded.name / "pginstall" / "bin",
            installation.major,
            out_of_reach / embedded.name,
        )
        copied = cluster._home.reachable(found)
        assert copied.bindir != found.bindir
        done = subprocess.run([copied.bindir / "initdb", "--version"], user=user.pw_uid, capture_output=True)
        assert done.returncode == 0, done.stderr
        with pytest.raises(ClusterError, match="cannot run"):
            cluster._home.reachable(Installation(found.bindir / "..", found.major))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's servers run as another")
def test_the_user_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nobody", "65534"):
        monkeypatch.setenv("PG_LOOKAHEAD_USER", name)
        assert server_user() == pwd.getpwnam("nobody")
    for name in ("root", "no such user", "4294967000", "²", "9" * 30):
        monkeypatch.setenv("PG_LOOKAHEAD_USER", name)
        with pytest.raises(ClusterError, match=name):
            server_user()


def fake_pg_config(directory: Path, version: str) -> Path:
    path = directory / "pg_config"
    path.write_text(
        f"#!/bin/sh\nfor a; do case $a in --version) echo '{version}';; *) echo /x;; esac; done\n"
    )
    path.chmod(0o755)
    return path


def test_an_old_server_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="15"):
        Installation.find(fake_pg_config(tmp_path, "PostgreSQL 15.18 (Debian)"))
    assert Installation.find(fake_pg_config(tmp_path, "PostgreSQL 19rc1")).major == 19
    with pytest.raises(ClusterError, match="nothing/pg_config"):
        Installation.find("/nothing/pg_config")


def test_pg_config_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PG_CONFIG", str(fake_pg_config(tmp_path, "PostgreSQL 17.11")))
    assert Installation.find().major == 17


# The runner


def run_under(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(__file__).resolve().parents[2] / "tools" / "with_server.py"
    command = [sys.executable, "-I", str(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)


def test_runner_gives_a_server_and_the_status() -> None:
    query = "psycopg.connect().execute('SHOW work_mem').fetchone()[0]"
    show = f"import psycopg; print({query}); raise SystemExit(7)"
    done = run_under("--set", "work_mem=9MB", "--", sys.executable, "-c", show)
    assert (done.returncode, done.stdout.strip()) == (7, "9MB"), done.stderr


def test_runner_bad_input_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_under("--", "/no/such/command").returncode == 127
    monkeypatch.setenv("PG_CONFIG", "/no/pg_config")
    for arguments in (["--set", "work_mem", "--", "true"], ["--", "true"]):
        done = run_under(*arguments)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
