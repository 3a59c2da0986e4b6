"""Options, and types of parameters that several commands have: lists, numbers in bounds, NAME=VALUE.

The function of a type returns a parser for ``typer.Option(parser=...)``.  For a bad value, the parser raises
typer.BadParameter with one line that says what is possible."""

from collections.abc import Callable, Sequence
from typing import Any

import typer


def option(help: str, metavar: str | None = None, *names: str, **more: Any) -> Any:
    """Return a typer option; the arguments that most options need come first."""
    return typer.Option(*names, metavar=metavar, help=help, **more)


def words(*known: str) -> Callable[[str], tuple[str, ...]]:
    """Return the words of a comma-separated list, each once; an unknown word is a bad parameter."""

    def parse(text: str) -> tuple[str, ...]:
        found = [word.strip() for word in str(text).split(",")]
        for word in found:
            if word not in known:
                raise typer.BadParameter(f"{word!r} is not one of {', '.join(known)}")
        return tuple(dict.fromkeys(found))

    return parse


def numbers(
    least: float, most: float, kind: type[int] | type[float] = int
) -> Callable[[str], tuple[float, ...]]:
    """Return the numbers of a comma-separated list, each once; one outside the bounds is a bad parameter."""

    def parse(text: str) -> tuple[float, ...]:
        try:
            found = [kind(word.replace("_", "")) for word in str(text).split(",")]
        except ValueError:
            what = "whole numbers" if kind is int else "numbers"
            raise typer.BadParameter(f"{text!r} is not a list of {what} with commas between them") from None
        for value in found:
            if not least <= value <= most:
                raise typer.BadParameter(f"{value:,} is not from {least:,} to {most:,}")
        return tuple(dict.fromkeys(found))

    return parse


def assignments(option: str, texts: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE, several times; the last of a name holds."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{text!r} is not of the form NAME=VALUE", param_hint=f"'{option}'")
        found[name.strip()] = value.strip()
    return found
