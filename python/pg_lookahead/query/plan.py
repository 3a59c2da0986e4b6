"""The output of EXPLAIN (FORMAT JSON), with look-ahead's part of it for each node: which part of look-ahead
read how much, and what of it for nothing.  Pure functions."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

Json = Mapping[str, Any]

OPTION = "LOOKAHEAD"
"""The option of EXPLAIN that the library adds on PostgreSQL 18 and later."""

_STREAMED = ("Seq Scan", "Bitmap Heap Scan", "Sample Scan")
INDEX_SCANS = ("Index Scan", "Index Only Scan")

ROLES = ("", "for Subplans", "of foreign keys")
"""What follows "Look-Ahead" in the names of properties, for what a node can look ahead."""

_AGGREGATES = {"Sorted": "GroupAggregate", "Hashed": "HashAggregate", "Mixed": "MixedAggregate"}


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a plan.

    kind: "Index Scan"
    name: as EXPLAIN's text has it: "Index Scan using i on t"
    depth: of the root 0
    rows: returned, of all loops; as estimated if it was not executed
    loops: how often it was executed; None: only planned
    reads: blocks, of a scan; those of its children included
    used: whether look-ahead read anything ahead in it; None: not told
    said: what look-ahead did, or why it did nothing; empty where it has no part
    figures: look-ahead's properties of the node, without the word Look-Ahead"""

    kind: str
    name: str
    depth: int
    rows: float
    loops: float | None = None
    reads: int = 0
    used: bool | None = None
    said: str = ""
    figures: dict[str, Any] = {}


def walk(plan: Json, depth: int = 0) -> Iterator[tuple[int, Json]]:
    """Yield every node of a plan with its depth, from the root on."""
    yield depth, plan
    for child in plan.get("Plans", ()):
        yield from walk(child, depth + 1)


def name_of(node: Json) -> str:
    """Return a node in words, as EXPLAIN's text has it."""
    name = str(_AGGREGATES.get(node.get("Strategy", ""), node["Node Type"]))
    if name == "ModifyTable":
        name = node["Operation"]
    if node.get("Join Type", "Inner") != "Inner":
        name = f"{name.removesuffix(' Join')} {node['Join Type']} Join"
    name = "Parallel " * bool(node.get("Parallel Aware")) + name
    name += " Backward" * (node.get("Scan Direction") == "Backward")
    if "Index Name" in node:
        name += f" {'on' if node['Node Type'] == 'Bitmap Index Scan' else 'using'} {node['Index Name']}"
    on = node.get("Relation Name") or node.get("CTE Name") or node.get("Function Name")
    if on:
        name += f" on {on}" + f" {node.get('Alias')}" * (node.get("Alias", on) != on)
    return f"{node['Subplan Name']}: {name}" if "Subplan Name" in node else name


def shape(plan: Json) -> list[tuple[int, str]]:
    """Return each node's depth and name, by which plans are told apart."""
    return [(depth, name_of(node)) for depth, node in walk(plan)]


def relations(plan: Json) -> tuple[dict[tuple[str, str], bool], list[str]]:
    """Return the tables of a plan of EXPLAIN (VERBOSE), as (schema, name), and its indexes' names.

    Of each table, whether the plan writes it."""
    found = [node for _, node in walk(plan)]
    written = [one for one in found if one["Node Type"] == "ModifyTable"]
    written += [target for one in written for target in one.get("Target Tables", ())]
    tables = {
        (one["Schema"], one["Relation Name"]): kind
        for nodes, kind in ((found, False), (written, True))
        for one in nodes
        if "Relation Name" in one
    }
    return tables, sorted({one["Index Name"] for one in found if "Index Name" in one})


def nodes(plan: Json, *, version: int) -> list[Node]:
    """Return the nodes of a plan, executed or not, with what the library says of each.

    version: of the server; 17 does not let look-ahead tell of nodes"""
    return [_node(node, depth, *_said(node, version)) for depth, node in walk(plan)]


def idle(found: Collection[Node]) -> bool:
    """Tell whether nothing was read ahead, or would be; on 17, whether there is no index scan at all."""
    return not any(node.used or (node.used is None and node.kind in INDEX_SCANS) for node in found)


def _node(node: Json, depth: int, used: bool | None, said: str) -> Node:
    loops = node.get("Actual Loops")
    rows = node["Plan Rows"] if loops is None else node["Actual Rows"] * loops
    is_scan = "Relation Name" in node or "Index Name" in node
    return Node(
        kind=node["Node Type"],
        name=name_of(node),
        depth=depth,
        rows=rows,
        loops=loops,
        reads=sum(node.get(f"{kind} Read Blocks", 0) for kind in ("Shared", "Local") if is_scan),
        used=used,
        said=said,
        figures=_figures(node),
    )


def _figures(node: Json) -> dict[str, Any]:
    told = [name for name in node if name.startswith("Look-Ahead")]
    named = {name.removeprefix("Look-Ahead").strip(): node[name] for name in told}
    return {name: value for name, value in named.items() if name not in ROLES}


def _said(node: Json, version: int) -> tuple[bool | None, str]:
    """Return whether a node reads anything ahead, and what the library says of it, in its own words."""
    told = {role: node[key] for role in ROLES if (key := f"Look-Ahead {role}".strip()) in node}
    if told:
        said = [f"{role}: " * bool(role) + _of_role(word, role, node) for role, word in told.items()]
        return any(word in ("used", "possible") for word in told.values()), "; ".join(said)
    if node["Node Type"] not in INDEX_SCANS:
        return None, "PostgreSQL itself reads ahead" * (node["Node Type"] in _STREAMED)
    if version < 18:
        return None, "PostgreSQL 17 does not tell of single nodes"
    if "Actual Loops" not in node:
        return False, ""
    return (None, "") if node["Actual Loops"] else (False, "was not executed")


def _of_role(word: str, role: str, node: Json) -> str:
    """Tell what a node did in a role: the figures of EXPLAIN, but for what was nothing."""
    if word == "possible":
        return "would look ahead, once its reads are slow"
    if word != "used":
        return f"no look-ahead: {word}"
    others = tuple(other for other in ROLES if other != role and other)
    figures = [
        f"{name.removeprefix(role).strip()} {value:,}"
        for name, value in _figures(node).items()
        if name.startswith(role) and not name.startswith(others) and isinstance(value, int | float) and value
    ]
    return f"look-ahead: {', '.join(figures).lower()}"


_PARTS = (
    ("pg_lookahead.index_scan", ("Blocks Read",), "Blocks Unused"),
    ("pg_lookahead.index_pages", ("Leaf Pages Read",), "Leaf Pages Unused"),
    ("pg_lookahead.toast", ("TOAST Index Blocks Read", "TOAST Blocks Read"), "TOAST Blocks Unused"),
    *(
        (setting, tuple(f"{role}{one} Blocks Read" for one in read), f"{role}Blocks Unused")
        for setting, role, read in (
            ("pg_lookahead.nested_loop", "", ("Leaf", "Heap")),
            ("pg_lookahead.nested_loop", "for Subplans ", ("Leaf", "Heap")),
            ("pg_lookahead.writes", "", ("Index", "Heap")),
            ("pg_lookahead.writes", "of foreign keys ", ("Index", "Heap")),
        )
    ),
)
"""The setting that switches a part off; the figures that count what the part read ahead, of which a node that
has the first has all; and the figure that counts what was for nothing."""


class Part(msgspec.Struct, frozen=True):
    """What a part of look-ahead read ahead for a node, and how much of it was for nothing, in blocks.

    setting: switches the part off; node: its name"""

    setting: str
    node: str
    read: int
    unused: int


def parts(nodes: Iterable[Node]) -> Iterator[Part]:
    """Yield the parts of look-ahead that read something ahead, node by node."""
    for node in nodes:
        for setting, counted, vain in _PARTS:
            if counted[0] not in node.figures:
                continue
            read = sum(int(node.figures.get(name, 0)) for name in counted)
            if read:
                yield Part(setting, node.name, read, int(node.figures.get(vain, 0)))


def unused(nodes: Iterable[Node]) -> int:
    """Return how many blocks were read ahead for nothing."""
    return sum(part.unused for part in parts(nodes))


def of_planner(setting: Mapping[str, str]) -> bool:
    """Tell whether settings change the plan, and not only how it is executed."""
    return any(name.startswith(("enable_", "random_", "plan_")) for name in setting)


def candidates(found: Sequence[Node], settings: Mapping[str, str]) -> list[dict[str, str]]:
    """Return settings that might change what a plan gains, each to be tried by itself.

    found: the nodes of the plan, executed
    settings: of the session, by name"""
    kinds = {node.kind for node in found}
    wanted: list[dict[str, str]] = []
    most = settings.get("pg_lookahead.max_distance", "-1")
    if not idle(found) or "0" in (most, settings["effective_io_concurrency"]):
        if int(settings["effective_io_concurrency"]) < 64:
            wanted.append({"effective_io_concurrency": "64"})
        if most != "-1":
            wanted.append({"pg_lookahead.max_distance": "-1"})
        if settings.get("pg_lookahead.issue_order") == "index":
            wanted.append({"pg_lookahead.issue_order": "block"})
    planner = [{"enable_bitmapscan": "off"}] if "Bitmap Heap Scan" in kinds else []
    if kinds & {"Seq Scan", "Bitmap Heap Scan"} and float(settings["random_page_cost"]) > 1.1:
        planner += [{**one, "random_page_cost": "1.1"} for one in ({}, *planner)]
    wanted += planner
    return wanted
