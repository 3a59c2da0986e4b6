"""The output of EXPLAIN (FORMAT JSON), with look-ahead's part of it for each node.  Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

Json = Mapping[str, Any]

OPTION = "LOOKAHEAD"
"""The option of EXPLAIN that the library adds on PostgreSQL 18 and later."""

_STREAMED = ("Seq Scan", "Bitmap Heap Scan", "Sample Scan")
INDEX_SCANS = ("Index Scan", "Index Only Scan")

ROLES = ("", " for Subplans", " of foreign keys")
"""What follows "Look-Ahead" in the names of properties, for what a node can look ahead."""

_AGGREGATES = {"Sorted": "GroupAggregate", "Hashed": "HashAggregate", "Mixed": "MixedAggregate"}

_POSSIBLE = "would look ahead, once its reads are slow"
_REMEDIES = {
    "at most one row": "a unique key finds one row; a nested loop above may look ahead for it",
    "effective_io_concurrency is 0": "raise effective_io_concurrency, or the tablespace's",
    "executed by another extension": "load pg_lookahead before that extension",
    "index access method of an extension": "a btree, hash, GiST or SP-GiST index would be served",
    "not a heap table": "its access method fetches rows in its own way",
    "nothing to wait for": "what it read was cached, or too little",
    "ordered by distance": "the access method finds the next row one at a time",
    "pg_lookahead.enabled is off": "set it to on",
    "pg_lookahead.max_distance is 0": "set pg_lookahead.max_distance to -1",
    "reads are fast": "they come from the operating system's cache",
    "it was not faster": "this session has tried it on the same table or index",
    "reads are synchronous and direct": "io_method = worker reads in the background (PostgreSQL 18, restart)",
    "system catalog": "catalogs are small, and cached",
    "too many scans of temporary tables": "raise temp_buffers",
}
"""What explains a reason, or would change it."""


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
    return Node(
        kind=node["Node Type"],
        name=name_of(node),
        depth=depth,
        rows=rows,
        loops=loops,
        reads=sum(node.get(f"{kind} Read Blocks", 0) for kind in ("Shared", "Local") if _is_scan(node)),
        used=used,
        said=said,
        figures=_figures(node),
    )


def _is_scan(node: Json) -> bool:
    return "Relation Name" in node or "Index Name" in node


def _figures(node: Json) -> dict[str, Any]:
    return {
        name.removeprefix("Look-Ahead "): value
        for name, value in node.items()
        if name.startswith("Look-Ahead ")
    }


def _said(node: Json, version: int) -> tuple[bool | None, str]:
    told = {role: str(node[f"Look-Ahead{role}"]) for role in ROLES if f"Look-Ahead{role}" in node}
    if told:
        figures = _figures(node)
        said = [
            role.lstrip() + ": " * bool(role) + _of_role(word, role, figures) for role, word in told.items()
        ]
        return any(word in ("used", "possible") for word in told.values()), "; ".join(said)
    if node["Node Type"] not in INDEX_SCANS:
        return None, _streamed(node)
    if version < 18:
        return None, "PostgreSQL 17 does not tell of single nodes"
    if "Actual Loops" not in node:
        return False, ""
    return (None, "") if node["Actual Loops"] else (False, "was not executed")


def _of_role(told: str, role: str, figures: Mapping[str, Any]) -> str:
    """Describe what a node did in one of its roles, or why it did nothing."""
    if told == "possible":
        return _POSSIBLE
    if told != "used":
        return _not_used(told)
    prefix = f"{role} ".lstrip()
    others = tuple(f"{one} ".lstrip() for one in ROLES if one and one != role)
    of_role = {
        name.removeprefix(prefix): value
        for name, value in figures.items()
        if name.startswith(prefix) and not name.startswith(others)
    }
    return _did(of_role) + " (by the leader)" * bool(figures.get("of Leader Only"))


def _did(figures: Mapping[str, Any]) -> str:
    """Describe what a node read ahead; a node of another kind is described by all its figures."""
    told = []
    read = [_counted(figures[name], name[: -len("s Read")].lower()) for name in _ROWS if name in figures]
    if read:
        rows = "the first row was looked up early"
        if "Mean Rows" in figures:
            rows = f"{figures['Mean Rows']:g} rows ahead on average (at most {figures['Maximum Rows']})"
        vain = figures.get("Blocks Unused")
        told.append(
            f"{rows}; {' and '.join(read)} read ahead" + (f", {vain:,} of them in vain" if vain else "")
        )
    if figures.get("Blocks Read"):
        told.append(f"{figures['Blocks Read']:,} blocks read ahead")
        if "Waits" in figures:
            told.append(f"{figures['Waits']:,} waited for")
        if "Mean Distance" in figures:
            told.append(f"distance {figures['Mean Distance']:g} (at most {figures['Maximum Distance']})")
    if figures.get("Leaf Pages Read"):
        told.append(f"{_counted(figures['Leaf Pages Read'], 'leaf page')} read ahead")
    if figures.get("Values"):
        blocks = _counted(figures.get("TOAST Blocks Read", 0), "TOAST block")
        told.append(f"{_counted(figures['Values'], 'TOASTed value')} looked up ahead, {blocks} read ahead")
    if not told:
        told = [f"{name.lower()} {value}" for name, value in figures.items()]
    return ", ".join(told) or "reads ahead"


_ROWS = ("Leaf Blocks Read", "Index Blocks Read", "Heap Blocks Read")
"""What is read ahead for coming rows of a join, or for rows to be written."""


def _counted(count: int, what: str) -> str:
    """Return a number with the thing that it counts, in the plural where that is right."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def _not_used(reason: str) -> str:
    remedy = _REMEDIES.get(reason, "")
    return f"no look-ahead: {reason}" + (f" ({remedy})" if remedy else "")


def _streamed(node: Json) -> str:
    return "PostgreSQL itself reads ahead" if node["Node Type"] in _STREAMED else ""


def of_planner(setting: Mapping[str, str]) -> bool:
    """Tell whether settings change the plan, and not only how it is executed."""
    return any(name.startswith(("enable_", "random_", "plan_")) for name in setting)


def candidates(found: Sequence[Node], settings: Mapping[str, str]) -> list[dict[str, str]]:
    """Return settings that might change what a plan gains, each to be tried by itself.

    found: the nodes of the plan, executed
    settings: of the session, by name"""
    kinds = {node.kind for node in found}
    wanted: list[dict[str, str]] = []
    if not idle(found) or any(" is 0" in node.said for node in found):
        if int(settings["effective_io_concurrency"]) < 64:
            wanted.append({"effective_io_concurrency": "64"})
        if settings.get("pg_lookahead.max_distance", "-1") != "-1":
            wanted.append({"pg_lookahead.max_distance": "-1"})
        if settings.get("pg_lookahead.issue_order") == "index":
            wanted.append({"pg_lookahead.issue_order": "block"})
    planner = [{"enable_bitmapscan": "off"}] if "Bitmap Heap Scan" in kinds else []
    if kinds & {"Seq Scan", "Bitmap Heap Scan"} and float(settings["random_page_cost"]) > 1.1:
        planner += [{**one, "random_page_cost": "1.1"} for one in ({}, *planner)]
    wanted += planner
    return wanted
