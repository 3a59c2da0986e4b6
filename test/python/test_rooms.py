"""The rooms of src, and what docs/inside.md and their READMEs say of them."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from mutate import MUTATIONS

ROOT = Path(__file__).resolve().parents[2]
INSIDE = ROOT / "docs" / "inside.md"
ROOMS = sorted(path.name for path in (ROOT / "src").iterdir() if path.is_dir())
SOURCES = sorted((ROOT / "src").rglob("*.[ch]"))
PAGES = [INSIDE, *(ROOT / "src" / room / "README.md" for room in ROOMS)]
ROW = re.compile(r"^\| \[(\w+)\]\(\.\./src/\1/README\.md\) \| .* \| (.*) \|$", re.M)


def name(page: Path) -> str:
    return f"{page.parent.name}/{page.name}"


def sources(room: str) -> list[Path]:
    return sorted((ROOT / "src" / room).glob("*.[ch]"))


def called() -> dict[str, set[str]]:
    """The rooms that each room may call, in the order of the table."""
    found = ROW.findall(INSIDE.read_text())
    return {room: set() if others == "none" else set(others.split(", ")) for room, others in found}


def listed(room: str) -> list[str]:
    """The files that a README lists, in its order."""
    text = (ROOT / "src" / room / "README.md").read_text().partition("\n## Files")[2]
    heads = [line.partition(": ")[0] for line in text.splitlines() if line.startswith("- `")]
    names = [one for head in heads for one in re.findall(r"`([^`]+)`", head)]
    return [one.replace("[ch]", end) for one in names for end in ("c", "h") if "[ch]" in one or end == "c"]


def functions(room: str) -> dict[str, str]:
    """The functions that the files of a room give to others, and the file of each."""
    found = re.compile(r"^(?!static|PG_FUNCTION)\w[\w \t*]*\n([A-Z]\w+)\(", re.M)
    return {one: file.name for file in sources(room) for one in found.findall(file.read_text())}


def code(file: Path) -> str:
    return re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.S)


def test_the_table_has_every_room_above_those_that_it_calls() -> None:
    table = called()
    order = list(table)
    assert sorted(order) == ROOMS
    assert all(order.index(room) < order.index(other) for room in order for other in table[room])


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_calls_those_that_the_table_names(room: str) -> None:
    text = "".join(file.read_text() for file in sources(room))
    included = set(re.findall(r'^#include "(\w+)/\w+\.h"', text, re.M))
    assert (included & set(ROOMS)) - {room} == called()[room]


@pytest.mark.parametrize("room", ROOMS)
def test_a_readme_is_short_and_lists_the_files(room: str) -> None:
    assert len((ROOT / "src" / room / "README.md").read_text().splitlines()) <= 60
    assert sorted(listed(room)) == [file.name for file in sources(room)]


@pytest.mark.parametrize("room", ROOMS)
def test_a_file_calls_those_that_are_listed_below_it(room: str) -> None:
    order = listed(room)
    giving = functions(room)
    wrong = {
        (file.name, function)
        for file in sources(room)
        for function in set(re.findall(r"\b[A-Z]\w+\b", code(file))) & set(giving)
        if file.suffix == ".c" and order.index(giving[function]) < order.index(file.name)
    }
    assert not wrong


def test_the_behaviours_of_contributing_are_where_it_says() -> None:
    """The files of code exist, and the tests; a pattern names at least one of them."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text[text.index("| behaviour |") : text.index("\n## Commits")]
    named = re.findall(r"`([^` ]+)`", table)
    places = {
        one: [*ROOT.glob(one), *(ROOT / "test").glob(f"*/{one}")] for one in named if "." in one or "/" in one
    }
    assert len(table.strip().splitlines()) == 12 and [one for one, found in places.items() if not found] == []
    tests = "".join(file.read_text() for file in (ROOT / "test" / "python").glob("test_*.py"))
    functions = [one for one in named if one.startswith("test_") and one not in places]
    assert functions and all(re.search(rf"^def {one.replace('*', '')}", tests, re.M) for one in functions)


STATIC = re.compile(r"^(?:pg_noreturn )?static [\w \t*]+\n(\w+)\(", re.M)


def test_a_static_function_begins_with_a_word_of_its_file_and_has_a_name_of_its_own() -> None:
    """So that a debugger, a profile and an index of names tell it from others."""
    names = [(file, name) for file in SOURCES if file.suffix == ".c" for name in STATIC.findall(code(file))]
    assert [name for file, name in names if name.partition("_")[0] not in file.stem.split("_")] == []
    assert [name for name, times in Counter(name for _, name in names).items() if times > 1] == []


@cache
def words() -> set[str]:
    """All that stands in the sources."""
    return set(re.findall(r"\w+", "".join(file.read_text() for file in SOURCES)))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_names_and_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    named = {*re.findall(r"\b(\w+)\(\)", text), *re.findall(r"`([A-Za-z_]\w+)`", text)}
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text)]
    assert named and not named - words()
    assert [link for link in links if not (page.parent / link).exists()] == []
    files = set(re.findall(r"\b(\w+\.[ch])\b", text)) - {file.name for file in SOURCES}
    assert files <= {"judge_walk.c", "read_stream.c"}


def test_the_text_that_a_mutation_replaces_is_there_once() -> None:
    """Else nobody notices that it breaks nothing any more, before all of them are run."""
    for one in MUTATIONS:
        assert (ROOT / one.file).read_text().count(one.old) == 1, one.name


def test_the_tests_that_a_mutation_names_exist(request: pytest.FixtureRequest) -> None:
    """As far as their files are collected; a run of chosen tests knows too little."""
    config = request.config
    if config.option.keyword or any("::" in argument for argument in config.args):
        return
    known = {item.nodeid for item in request.session.items}
    known |= {one.partition("[")[0] for one in known}
    files = {one.partition("::")[0] for one in known}
    named = {test for one in MUTATIONS for test in one.tests}
    assert {one for one in named if one.partition("::")[0] in files} <= known | files
