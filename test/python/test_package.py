"""The tool as a whole: no circles of imports, and documentation that names what there is."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pg_lookahead
from command_line import tool

PACKAGE = Path(pg_lookahead.__file__).parent
REPOSITORY = PACKAGE.parents[1]
PAGES = [
    *sorted((REPOSITORY / "docs").glob("*.md")),
    *sorted((REPOSITORY / "src").glob("*/README.md")),
    *sorted(PACKAGE.glob("*/README.md")),
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
]
COMMANDS = (
    *("demo", "try", "report", "bench", "bench-report", "lab trace", "lab simulate", "lab replay"),
    *("lab profile record", "lab profile compare"),
)


def imported(file: Path) -> set[str]:
    """Modules of the package that a file imports when it is loaded, by their dotted names."""
    here = file.relative_to(PACKAGE).with_suffix("").parts
    found: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            above = here[: len(here) - node.level]
            base = ".".join((*above, *filter(None, (node.module or "").split("."))))
            names = {f"{base}.{alias.name}".strip(".") for alias in node.names}
            found |= {name if module(name) else base for name in names}
    return {name for name in found if module(name)}


def module(name: str) -> bool:
    return (PACKAGE / (name.replace(".", "/") + ".py")).exists() and bool(name)


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {
        ".".join(file.relative_to(PACKAGE).with_suffix("").parts): imported(file)
        for file in PACKAGE.rglob("*.py")
        if file.name != "__init__.py"
    }
    order = list(TopologicalSorter(graph).static_order())  # CycleError names the circle
    assert set(graph) <= set(order) and graph["bench.run"] > {"report.record", "server.cluster"}


def test_a_plain_call_loads_nothing_that_takes_long() -> None:
    """Of what takes more than a tenth of a second to load."""
    told = "print(*{'matplotlib', 'numpy', 'scipy', 'pyarrow', 'jinja2'} & {*sys.modules})"
    program = f"import sys; sys.argv[1:] = ['report', '--help']; import pg_lookahead.cli; {told}"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == ([], "")


FLOORS = ("server", "measure", "report", "query", "bench", "fleet", "lab")


@pytest.mark.parametrize("name", FLOORS)
def test_packages_are_floors(name: str) -> None:
    """What is above may import what is below it, and not the other way round."""
    above = FLOORS[FLOORS.index(name) + 1 :]
    found = {file.name: imported(file) for file in (PACKAGE / name).glob("*.py")}
    wrong = [(file, one) for file, names in found.items() for one in names if one.split(".")[0] in above]
    assert not wrong


@pytest.mark.parametrize("name", FLOORS)
def test_a_readme_is_short_and_lists_the_modules(name: str) -> None:
    """Each module imports, when it is loaded, only modules that are listed below it."""
    text = (PACKAGE / name / "README.md").read_text()
    lines = [line for line in text.partition("\n## Files")[2].splitlines() if line.startswith("- ")]
    listed = [one for line in lines for one in re.findall(r"`([\w/]+)\.py`", line)]
    files = {file.relative_to(PACKAGE / name).with_suffix("") for file in (PACKAGE / name).rglob("*.py")}
    assert sorted(listed) == sorted(str(file) for file in files if file.name != "__init__")
    assert len(text.splitlines()) <= 60
    for module_name in listed if name != "lab" else ():
        found = imported(PACKAGE / name / f"{module_name}.py")
        above = listed[: listed.index(module_name)]
        assert not found & {f"{name}.{other}" for other in above}, module_name


def code(page: Path) -> str:
    """What a page shows as code, lines that are continued in one."""
    text = page.read_text().replace("\\\n", " ")
    pieces = re.findall(r"```.*?\n(.*?)```|`([^`\n]+)`", text, re.S)
    return "\n".join(block or span for block, span in pieces)


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    """The options of each command."""
    found = {}
    for command in COMMANDS:
        shown = tool(*command.split(), "--help").stdout
        found[command] = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", shown))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_that_a_page_shows_exist(page: Path, known: dict[str, set[str]]) -> None:
    wrong = []
    for line in code(page).splitlines():
        for command, rest in re.findall(
            r"\bpg_lookahead ((?:lab )?(?:profile )?[a-z-]+)((?: [^|&;#]*)?)", line
        ):
            name = command if command in known else command.split()[0]
            options = re.findall(r"(?<=\s)--[a-z][a-z-]*", rest.partition(" -- ")[0])
            wrong += [f"{name} {word}" for word in options if name in known and word not in known[name]]
    assert not wrong, f"{page.name} names options that there are not: {wrong}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_that_a_page_shows_exist(page: Path) -> None:
    sources = "".join(file.read_text() for file in (REPOSITORY / "src").rglob("*.[ch]"))
    defined = set(re.findall(r'"(pg_lookahead\.[a-z_]+)"', sources))
    named = set(re.findall(r"\bpg_lookahead\.([a-z_]+)\b(?!\.)", code(page)))
    others = {"c", "so", "control", "spec", "trace", "server", "cluster"}  # files and modules
    wrong = {f"pg_lookahead.{name}" for name in named - others} - defined
    assert len(defined) > 8 and not wrong, f"{page.name} names settings that there are not: {wrong}"


def test_set_up_ends_with_what_to_run_next() -> None:
    # into the embedded server, whose library is the same; others keep what they were given for this run
    variables = {name: value for name, value in os.environ.items() if name != "PG_CONFIG"}
    done = subprocess.run(
        ["make", "-s", "setup"], cwd=REPOSITORY, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "make demo" in done.stdout and "--install-completion" in done.stdout


OPTIONS = [page for page in PAGES if page.stem in ("try", "report", "benchmarks", "lab")]


@pytest.mark.parametrize("page", OPTIONS, ids=lambda page: page.name)
def test_options_that_the_tool_s_own_pages_name_exist(page: Path, known: dict[str, set[str]]) -> None:
    spans = re.findall(r"`(--[a-z][^`]*)`", page.read_text())
    every = set().union(*known.values())
    wrong = {word for span in spans for word in re.findall(r"--[a-z][a-z-]*", span)} - every - {"--readonly"}
    assert not wrong
