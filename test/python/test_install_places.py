"""The extension installed outside the server's own directories, or for sessions that are no superuser's;
the servers that the library refuses; and what it exports."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest

from installations import Copy, copy_installation, copy_sources, looks_ahead, make_library, scans
from pg_lookahead.server.cluster import Cluster, ClusterError
from pg_lookahead.server.home import Home
from pg_lookahead.server.installation import Installation
from queries import fetch, fetch_row, run, scalar
from scans import EVERY_METHOD, INDEX_SCANS

ROOT = Path(__file__).resolve().parents[2]
VERSION = (ROOT / "VERSION").read_text().strip()
MAJOR = Installation.find().major


@pytest.fixture(scope="module")
def sources() -> Path:
    directory = Home.of_this_process().make_directory("sources")
    copy_sources(directory, objects=True)
    return directory


@pytest.fixture(scope="module")
def bare() -> Copy:
    """An installation without the extension."""
    copy = copy_installation()
    copy.library.unlink()
    for file in copy.extensions.glob("pg_lookahead*"):
        file.unlink()
    return copy


def server(copy: Copy, **settings: object) -> Cluster:
    return Cluster(pg_config=copy.pg_config, settings=settings, name="places")


# A prefix of its own


@pytest.fixture(scope="module")
def image(sources: Path) -> Path:
    """What an extension image has, and nobody may write to."""
    tree = Home.of_this_process().make_directory("image")
    make_library(sources, "extension-tree", f"TREE={tree}")
    subprocess.run(["chmod", "-R", "a+rX,a-w", tree], check=True)
    return tree


def test_the_tree_of_an_image(image: Path) -> None:
    files = {str(file.relative_to(image)) for file in image.rglob("*") if file.is_file()}
    assert files == {
        "lib/pg_lookahead.so",
        "share/extension/pg_lookahead.control",
        "share/extension/pg_lookahead--1.0.sql",
    }


@pytest.mark.skipif(MAJOR < 18, reason="extension_control_path is new in 18")
@pytest.mark.parametrize("preload", ("", "pg_lookahead"))
def test_a_prefix_that_two_settings_name(image: Path, bare: Copy, preload: str) -> None:
    """Preload, CREATE EXTENSION, index scans and an update, with nothing in the server's own directories."""
    places = {
        "extension_control_path": f"$system:{image}/share",
        "dynamic_library_path": f"$libdir:{image}/lib",
    }
    with server(bare, shared_preload_libraries=preload, **places) as cluster, cluster.connect() as conn:
        run(conn, EVERY_METHOD)
        if not preload:
            conn.execute("LOAD 'pg_lookahead'")
        conn.execute(f"{INDEX_SCANS}; SET pg_lookahead.debug_force = on".encode())
        before = scans(conn)
        looks_ahead(conn)
        assert scans(conn) == before + 1
        assert fetch_row(conn, "SELECT lookahead.version()") == (VERSION,)


@pytest.mark.skipif(MAJOR < 18, reason="extension_control_path is new in 18")
def test_an_update_in_a_prefix(image: Path, bare: Copy) -> None:
    tree = Home.of_this_process().make_directory("updated")
    shutil.copytree(image, tree, dirs_exist_ok=True)
    subprocess.run(["chmod", "-R", "u+w,a+rX", tree], check=True)
    moved = Copy(bare.bindir, tree / "lib", tree / "share" / "extension")
    places = {"extension_control_path": f"{tree}/share:$system", "dynamic_library_path": f"{tree}/lib"}
    with server(bare, **places) as cluster, cluster.connect() as conn:
        conn.execute("CREATE EXTENSION pg_lookahead")
        moved.install_next_sql()
        conn.execute("ALTER EXTENSION pg_lookahead UPDATE")
        assert scalar(conn, "SELECT extversion FROM pg_extension WHERE extname = 'pg_lookahead'") == "1.1"


# Plugins


def test_a_plugin_needs_no_superuser(sources: Path, bare: Copy) -> None:
    """Whoever may connect may load what an administrator has put there, and sets what is for everybody."""
    make_library(sources, "install-plugin", f"pkglibdir={bare.pkglibdir}")
    try:
        with server(bare) as cluster:
            with cluster.connect() as admin:
                admin.execute("CREATE ROLE reader LOGIN")
            with cluster.connect(user="reader") as conn:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    conn.execute("LOAD 'pg_lookahead'")
                conn.execute("LOAD '$libdir/plugins/pg_lookahead'")
                settings = fetch(
                    conn, "SELECT name, boot_val FROM pg_settings WHERE name LIKE 'pg\\_lookahead.%'"
                )
                assert len(settings) >= 8
                for name, value in settings:
                    conn.execute("SELECT set_config(%s, %s, false)", [name, value])
                for preloaded in ("session_preload_libraries", "shared_preload_libraries"):
                    with pytest.raises(
                        (psycopg.errors.InsufficientPrivilege, psycopg.errors.CantChangeRuntimeParam)
                    ):
                        conn.execute(f"SET {preloaded} = 'pg_lookahead'".encode())
            with cluster.connect(user="reader", options="-c local_preload_libraries=pg_lookahead") as conn:
                assert scalar(conn, "SHOW pg_lookahead.enabled") == "on"
    finally:
        make_library(sources, "uninstall-plugin", f"pkglibdir={bare.pkglibdir}")
    assert not (bare.pkglibdir / "plugins" / "pg_lookahead.so").exists()


# The servers that the library refuses


def test_an_older_minor_version_is_refused() -> None:
    """By CREATE EXTENSION and LOAD, in one line; and a server that is to preload it says so and stops."""
    directory = Home.of_this_process().make_directory("newer")
    copy_sources(directory, objects=True)
    file = directory / "src" / "pg_lookahead.c"
    newer = f"#undef LOOKAHEAD_BUILT_FOR\n#define LOOKAHEAD_BUILT_FOR {MAJOR}0099\n"
    file.write_text(file.read_text().replace("\nstatic void\n", f"\n{newer}\nstatic void\n", 1))
    copy = copy_installation()
    copy.replace_library(make_library(directory))
    refusal = (
        rf"pg_lookahead {VERSION} was built for PostgreSQL {MAJOR}\.99 or later, and this server is {MAJOR}"
    )
    with server(copy) as cluster, cluster.connect() as conn:
        for statement in ("CREATE EXTENSION pg_lookahead", "LOAD 'pg_lookahead'"):
            with pytest.raises(psycopg.errors.FeatureNotSupported, match=refusal) as error:
                conn.execute(statement.encode())
            assert "minor version" in str(error.value.diag.message_hint)
        assert fetch_row(conn, "SELECT 1") == (1,)
    with pytest.raises(ClusterError, match=refusal), server(copy, shared_preload_libraries="pg_lookahead"):
        pass


# What it exports


def test_only_what_postgresql_needs_is_exported() -> None:
    """The symbols that the server looks up, by name: what SQL declares, and the module's own two."""
    library = copy_installation().library
    done = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    exported = {line.split()[-1] for line in done.stdout.splitlines()}
    script = (ROOT / "sql" / "pg_lookahead--1.0.sql").read_text()
    functions = set(re.findall(r"'MODULE_PATHNAME', '(\w+)'", script))
    assert exported == {"Pg_magic_func", "_PG_init", *functions, *(f"pg_finfo_{name}" for name in functions)}
