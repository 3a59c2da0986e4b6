"""Torture: sessions that write, read and maintain; servers that crash under them; checks after each.

    make torture MINUTES=10 SEED=1

``schema`` has the tables, ``model`` what a client knows of its rows, ``writers``, ``readers`` and
``upkeep`` what sessions do, ``sessions`` how they are run, ``faults`` how servers are brought down,
``checks``, ``recovery`` and ``pages`` what must hold afterwards, ``sabotage`` what makes each check fail,
and ``run`` puts them together.
"""
