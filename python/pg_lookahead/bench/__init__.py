"""``pg_lookahead bench``: how much look-ahead helps on this machine's storage.

options     what to measure: the user's words, checked before anything starts
tables      the tables that scenarios read
cells       what can be compared, declared; scenarios: what is
subjects    how it is executed, and the proof that it was: scans, lookup, statements, vacuum
target      the server: a private one, or the user's own
meter       what one execution cost
plan        what is to be measured where, and whether that is possible
settings    of the private server
run         the matrix: servers, tables, and cell after cell
compare     one cell
facts       where it was
turns       stock and look-ahead in turns, until the interval is narrow
statistics  the interval of a ratio, when to stop, and what may be concluded
latency     a mount where reads take longer
perf        records of perf
results     what was measured, in memory and as JSON lines
screen      progress, and the table
report      a page of HTML from the JSON lines
"""
