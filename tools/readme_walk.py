"""A new user's walks: what README.md and docs/install.md tell to type, typed as it stands there.

The commands are the pages' own blocks of ``sh`` and ``sql``, and ``ini`` for settings, in their
order, so that neither can rot.  ``packages`` runs them in clean roots; what the reader would look at is
checked in between."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"

INSTALL = README.with_name("docs") / "install.md"

_BLOCK = re.compile(r"^```(sh|sql|ini)\n(.*?)^```$", re.S | re.M)

# A clean root has no sudo, and nobody who answers apt's questions.
_BEGIN = """
sudo() { if [ "$1" = -u ]; then user=$2; shift 2; runuser -u "$user" -- "$@"; else "$@"; fi; }
printf 'APT::Get::Assume-Yes "true";\\nAPT::Install-Recommends "false";\\n' >/etc/apt/apt.conf.d/walk
cd /package
"""

# A make that is typed uses all processors, and leaves out LLVM's code, which the Debian package has.
_MAKE = 'export MAKEFLAGS="-j$(nproc) with_llvm=no"\n'

_SETTINGS = """cat >/etc/postgresql/{1}/main/conf.d/walk.conf <<'end_of_settings'
{0}end_of_settings
pg_ctlcluster {1} main restart
"""

_PSQL = "sudo -u postgres psql -X -v ON_ERROR_STOP=1 <<'end_of_sql'\n{}end_of_sql\n"

# In the session that has just been shown the plan.
_CHECK_PLAN = """DO $$ BEGIN
    ASSERT lookahead.index_scans_served() > 0, 'the query was not run by look-ahead';
    ASSERT (SELECT tuple_count FROM lookahead.pgstattuple('orders')) = 4000000, 'the diagnostics are wrong';
END $$;
"""

# The same sources make the same package, by a compiler that is given the distribution's flags each time it
# makes an object (LLVM's code is made again by the server).
_TWICE = """lintian --fail-on error ../*.changes
mkdir ../first
mv ../*.deb ../first/
dpkg-buildpackage -us -uc -b >../again 2>&1 || { cat ../again; exit 1; }
for package in ../*.deb; do cmp $package ../first/${package##*/}; done
rm -r ../first
blhc --all --ignore-line '.*-emit-llvm.*' ../again
"""

_USE = _PSQL.format("""CREATE EXTENSION pg_lookahead;
SELECT lookahead.version();
CREATE TEMP TABLE t AS SELECT i, repeat('x', 500) AS filler FROM generate_series(1, 20000) AS i;
CREATE INDEX ON t (i);
ANALYZE t;
LOAD 'pg_lookahead';
SET enable_seqscan = off;
DO $$ BEGIN
    ASSERT (SELECT count(filler) FROM t WHERE i BETWEEN 500 AND 1500) = 1001, 'index scan';
    ASSERT lookahead.index_scans_served() > 0, 'not ours';
    ASSERT (SELECT tuple_count FROM lookahead.pgstattuple('t')) = 20000, 'diagnostics';
END $$;
DROP EXTENSION pg_lookahead;
DROP SCHEMA lookahead;
""")

_REGRESS = """mkdir -p build/regress build/isolation
chown -R postgres .
runuser -u postgres -- make -s installcheck with_llvm=no PG_CONFIG=/usr/lib/postgresql/{0}/bin/pg_config
"""

# As CloudNativePG mounts what an image has.
_MOUNT = """mkdir -p /extensions/pg_lookahead
mount --bind /opt/pg_lookahead /extensions/pg_lookahead
mount -o remount,bind,ro /extensions/pg_lookahead
! touch /extensions/pg_lookahead/lib/file
"""
_IMAGE_SETTINGS = """extension_control_path = '$system:/extensions/pg_lookahead/share'
dynamic_library_path = '$libdir:/extensions/pg_lookahead/lib'
shared_preload_libraries = 'pg_lookahead'
"""

_CHECK_END = """DO $$ BEGIN
    ASSERT current_setting('shared_preload_libraries') = '', 'the library is still loaded';
    ASSERT to_regnamespace('lookahead') IS NULL, 'the schema is still there';
    ASSERT (SELECT count(*) FROM orders) = 4000000, 'the table has lost rows';
END $$;
"""


def blocks(readme: str) -> list[tuple[str, str]]:
    """Return the language and the text of each block that is to be typed."""
    return _BLOCK.findall(readme)


def section(page: str, title: str) -> str:
    """Return the text of one section of a page."""
    return page.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def typed(text: str, major: int, role: str = "postgres") -> str:
    """Return the commands of a text as a shell script, for one version; the text's 18 stands for any."""
    steps = []
    for language, block in blocks(text):
        command = re.sub(r"(?<!\d)18(?!\d)", str(major), block)
        if language == "sql":
            check = _CHECK_PLAN if "EXPLAIN" in command else ""
            command = _PSQL.format(command + check).replace("psql", f"psql -d postgres -U {role}")
        elif language == "ini":
            command = _SETTINGS.format(command, major)
        steps.append(command)
    return "".join(steps)


def script(readme: str, major: int) -> str:
    """Return the walk through the README, where the package lies in the working directory."""
    return "".join(
        [
            _BEGIN,
            typed(readme, major),
            _PSQL.format(_CHECK_END),
            f"! dpkg -s postgresql-{major}-lookahead 2>/dev/null | grep '^Status.* installed'\n",
        ]
    )


def source_script(page: str, major: int) -> str:
    """Return the section on building from source, and the regression tests, in the directory ``source``."""
    return "".join(
        [
            _BEGIN,
            "cd source\n",
            _MAKE,
            typed(section(page, "From source"), major),
            _SETTINGS.format("shared_preload_libraries = 'pg_lookahead'\n", major),
            _USE,
            _REGRESS.format(major),
        ]
    )


def install_script(page: str, major: int) -> str:
    """Return the walk through docs/install.md, in the directory ``source`` with sources and archive."""
    restart = f"pg_ctlcluster {major} main restart\n"
    as_before = f"rm -f /etc/postgresql/{major}/main/conf.d/walk.conf\n{restart}"
    trust = f"sed -i 's/peer$/trust/' /etc/postgresql/{major}/main/pg_hba.conf\n"
    uninstall = f"make -s uninstall PG_CONFIG=/usr/lib/postgresql/{major}/bin/pg_config\n"
    steps = [_BEGIN, "cd source\n", typed(section(page, "Debian packages"), major), _TWICE, _MAKE]
    steps += [
        trust,
        restart,
        _USE,
        "sh debian/tests/installcheck\n",
        typed(section(page, "Loading it"), major),
        _PSQL.format("DROP EXTENSION pg_lookahead;\nDROP SCHEMA lookahead;\n"),
        as_before,
        f"apt-get remove -q postgresql-{major}-lookahead\n",
    ]
    for title in ("From source", "PGXN"):
        steps += [typed(section(page, title), major), restart, _USE, uninstall]
    if major >= 18:
        steps += [typed(section(page, "A prefix of its own"), major), _USE]
        steps += [_MOUNT, _SETTINGS.format(_IMAGE_SETTINGS, major), _USE, as_before]
    steps += [
        _PSQL.format("CREATE ROLE app LOGIN;\n"),
        typed(section(page, "Without a superuser: plugins"), major, "app"),
    ]
    return "".join(steps)
