"""``pg_lookahead bench``: how much look-ahead helps on this machine's storage.

command     the commands ``bench``, ``demo`` and ``report``, and their options
options     what to measure: all of a run; suites
tables      the tables that scenarios read
cells       what can be compared, declared; scenarios: what is
subjects    how it is executed, and the proof that it was: scans, statements, vacuum
plan        what is to be measured where, and whether that is possible
settings    of the private server
run         the matrix: servers, tables, and cell after cell
compare     one cell
"""
