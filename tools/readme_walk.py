"""A new user's walk: what README.md tells to type, typed as it stands there, by a machine that has nothing.

The commands are the README's own blocks of ``sh`` and ``sql``, in their order, so that neither can rot.
``packages`` runs them in a clean root, where the package lies in the working directory; what the reader
would look at is checked in between."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"

_BLOCK = re.compile(r"^```(sh|sql)\n(.*?)^```$", re.S | re.M)

# A clean root has no sudo, and nobody who answers apt's questions.
_BEGIN = """
sudo() { if [ "$1" = -u ]; then user=$2; shift 2; runuser -u "$user" -- "$@"; else "$@"; fi; }
printf 'APT::Get::Assume-Yes "true";\\nAPT::Install-Recommends "false";\\n' >/etc/apt/apt.conf.d/walk
cd /package
"""

_PSQL = "sudo -u postgres psql -X -v ON_ERROR_STOP=1 <<'end_of_sql'\n{}end_of_sql\n"

# In the session that has just been shown the plan.
_CHECK_PLAN = """DO $$ BEGIN
    ASSERT lookahead.index_scans_served() > 0, 'the query was not run by look-ahead';
    ASSERT (SELECT tuple_count FROM lookahead.pgstattuple('orders')) = 4000000, 'the diagnostics are wrong';
END $$;
"""

_CHECK_END = """DO $$ BEGIN
    ASSERT current_setting('shared_preload_libraries') = '', 'the library is still loaded';
    ASSERT to_regnamespace('lookahead') IS NULL, 'the schema is still there';
    ASSERT (SELECT count(*) FROM orders) = 4000000, 'the table has lost rows';
END $$;
"""


def blocks(readme: str) -> list[tuple[str, str]]:
    """The language and the text of each block that is to be typed."""
    return _BLOCK.findall(readme)


def script(readme: str, major: int) -> str:
    """The walk as a shell script, for one version; the README's stands for any."""
    steps = [_BEGIN]
    for language, text in blocks(readme):
        typed = re.sub(r"(?<!\d)18(?!\d)", str(major), text)
        check = _CHECK_PLAN if "EXPLAIN" in typed else ""
        steps.append(typed if language == "sh" else _PSQL.format(typed + check))
    steps += [
        _PSQL.format(_CHECK_END),
        f"! dpkg -s postgresql-{major}-lookahead 2>/dev/null | grep '^Status.* installed'\n",
    ]
    return "".join(steps)
