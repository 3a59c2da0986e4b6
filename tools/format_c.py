"""Bring C files into PostgreSQL's form, or check that they are.

    python tools/format_c.py [--check] FILE ...

pgindent is not to be had as a package, so clang-format does its work (see .clang-format):
indentation, braces, spaces, return types on their own lines.  What it cannot do as pgindent
does is left to the author: to align names and comments in columns (a line that differs from
clang-format's in its inner white space alone stays as it is), and to break statements and indent
their continuation.  Checked besides: no trailing white space, and no line over 80 columns
but for the sake of a string, which is not to be broken since people search for messages.
"""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
from pathlib import Path

COLUMNS = 80
TAB = 4
CLANG_FORMAT = Path(sys.executable).with_name("clang-format")


def loosely(line: str) -> str:
    """Return the line with its inner white space made one space, and its indentation kept."""
    body = line.lstrip("\t ")
    return line[: len(line) - len(body)] + " ".join(body.split()).replace(") (", ")(")


def continues(before: str) -> bool:
    """Return whether the line after ``before`` goes on with its statement."""
    code = before.strip()
    if re.match(r"(case\b.*|default|\w+) ?:$|#|(else|if|for|foreach|while|switch)\b", code):
        return False
    return bool(code) and not code.endswith((";", "{", "}", "*/"))


def broken_alike(ours: list[str], theirs: list[str], before: str) -> bool:
    """Return whether two forms of some lines differ in where they break and indent a statement only."""
    one, other = ("".join("".join(lines).split()) for lines in (ours, theirs))
    if not one or one != other:
        return False
    begins = [line[: len(line) - len(line.lstrip())] for line in (ours[0], theirs[0])]
    return begins[0] == begins[1] or continues(before)


def formatted(text: str) -> str:
    """clang-format's form of a file, but with the author's alignment within lines."""
    done = subprocess.run(
        [CLANG_FORMAT, "--assume-filename=x.c"], input=text, capture_output=True, text=True, check=True
    )
    ours, theirs = text.splitlines(), done.stdout.splitlines()
    matcher = difflib.SequenceMatcher(None, [loosely(x) for x in ours], [loosely(x) for x in theirs], False)
    lines: list[str] = []
    for kind, start, end, their_start, their_end in matcher.get_opcodes():
        mine, other = ours[start:end], theirs[their_start:their_end]
        before = ours[start - 1] if start else ""
        lines += mine if kind == "equal" or broken_alike(mine, other, before) else other
    return "\n".join(line.rstrip() for line in lines) + "\n"


def main() -> int:
    """0: all is well (or has been made so); 1: something is not."""
    check = sys.argv[1:2] == ["--check"]
    failed = False
    for path in map(Path, sys.argv[2:] if check else sys.argv[1:]):
        text = path.read_text()
        wanted = formatted(text)
        if check and wanted != text:
            failed = True
            sys.stdout.writelines(
                difflib.unified_diff(
                    text.splitlines(True), wanted.splitlines(True), str(path), "formatted", n=1
                )
            )
        elif wanted != text:
            path.write_text(wanted)
        for number, line in enumerate(wanted.splitlines(), 1):
            if len(line.expandtabs(TAB)) > COLUMNS and '"' not in line:
                failed = True
                print(f"{path}:{number}: longer than {COLUMNS} columns")
    if failed and check:
        print("make format brings code into form")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
