"""``pg_lookahead bench``: how much look-ahead helps on this machine's storage.

options     what to measure: the user's words, checked before anything starts
tables      the table that all scenarios read
scenarios   what is executed, and how each execution proves what it was
run         servers, caches, and turns of stock and look-ahead until the interval is narrow
statistics  the interval of a ratio, when to stop, and what may be concluded
latency     a mount where reads take longer
report      progress, the table, and JSON lines
"""
