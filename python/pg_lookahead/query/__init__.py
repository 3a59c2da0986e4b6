"""``pg_lookahead try``: a statement of the user's own, on a server of his own, with look-ahead and without.

plan     what EXPLAIN tells of a statement, and what look-ahead says of each node; pure
session  a connection on which the statement is explained, in transactions that are rolled back
caches   the plan's relations cold, warm, or as they are
trial    the measurement, and the settings that would change it
view     the result in words
example  a join on a private server, for the demo
"""
