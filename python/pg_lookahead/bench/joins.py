"""Nested loops: a function of ``tables`` executes one many times over (see ``scans``)."""

from collections.abc import Iterator
from typing import Any

from ..measure.meter import Sample
from ..server.cluster import Cluster
from ..server.queries import scalar
from . import tables
from .cells import SCHEMA, JoinCell
from .scans import Scan
from .subjects import Context, Counters, Refused, blocks_of, planned

_NESTED_LOOPS = (
    "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off;"
    " SET enable_memoize = off; SET random_page_cost = 1"
)
_COLD_ROWS = 150
"""A cold sample must have read at least one block for each group of this number of outer rows."""

_COLD_ROWS_IN_KEY_ORDER = 4
"""The same for orders, besides all blocks of ``o``: their lines are so far apart that most need a read."""


class Join(Scan):
    """A JoinCell at work in a session, or in several."""

    cell: JoinCell

    def __init__(self, cluster: Cluster, cell: JoinCell, context: Context) -> None:
        super().__init__(cluster, cell, context)
        self._functions = [cell.way] * cell.clients
        self._one_in = tables.ONE_IN.get(cell.way)
        self.unordered = cell.way == "join_parallel" or self._one_in is not None
        self._probed *= self._one_in or 1
        self.rows = tables.outer_rows(self.rows)
        self._place()
        indexes = ("t_seq", "t_per", "t_rnd", "t_fives", "t_groups", "t_tens", "o_place")
        others = ("t_seq", "t_lines", "buyers") if self._one_in else indexes
        self.relations = (tables.TABLE, tables.OUTER, *(f"{SCHEMA}.{name}" for name in others))

    def planner(self) -> str:
        return f"{super().planner()}; {_NESTED_LOOPS}; {self.cell.planner}"

    def counters(self) -> Counters:
        ahead = scalar(self.conn, "SELECT rows FROM lookahead.join_stats")
        return {**super().counters(), "rows_ahead": int(ahead)}

    def check(self, ours: bool, sample: Sample, counters: Counters) -> None:
        super().check(ours, sample, counters)
        ahead = counters.get("rows_ahead", 0)
        if not ours and ahead:
            raise Refused(f"stock has fetched {ahead:,} outer rows ahead")

    def _query(self, start: str, n: str) -> str:
        return tables.joins(start, n)[self.cell.way]

    def _check_plan(self) -> None:
        """Refuse the cell unless its generic plan has the wanted node on an inner side, or in a subplan."""
        plan = planned(self.conn, self._query("$1::bigint", "$2::bigint"), "GENERIC_PLAN")
        found = list(_inner_nodes(plan))
        if self.cell.inner not in found:
            raise Refused(f"the plan has on inner sides: {', '.join(found) or 'nothing'}")
        outer = tuple(outer_nodes(plan))
        if self.cell.outer and outer != self.cell.outer:
            raise Refused(f"the plan has along the outer sides: {', '.join(outer)}")

    def _blocks(self) -> int:
        if self._one_in:
            outer = self.cell.n // self._one_in
            return blocks_of(self.conn, [tables.OUTER]) + outer // _COLD_ROWS_IN_KEY_ORDER
        return max(1, self.cell.n * self.times // _COLD_ROWS)

    def _wanted(self, n: int) -> int | None:
        return None


def outer_nodes(plan: dict[str, Any]) -> Iterator[str]:
    """Yield the nodes from the top along the outer sides: kinds, of joins and of scans of which relation."""
    words = [plan["Node Type"]]
    if plan.get("Join Type", "Inner") != "Inner":
        words.append(plan["Join Type"])
    if "Relation Name" in plan:
        words.append(f"on {plan['Relation Name']}")
    yield " ".join(words)
    if "Plans" in plan:
        yield from outer_nodes(plan["Plans"][0])


def _inner_nodes(plan: dict[str, Any]) -> Any:
    """Yield the kinds of the nodes below inner sides of nested loops and in subplans, from the top down."""
    below = plan.get("Plans", ())
    tops = [node for node in below if node["Parent Relationship"] == "SubPlan"]
    if plan["Node Type"] == "Nested Loop":
        tops.append(below[1])
    for node in tops:
        yield node["Node Type"]
        while "Plans" in node:
            node = node["Plans"][0]
            yield node["Node Type"]
    for child in below:
        yield from _inner_nodes(child)
