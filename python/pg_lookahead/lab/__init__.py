"""``pg_lookahead lab``: instruments of those who develop look-ahead.

profile     which functions of the server a statement spends its time in, and comparisons of that
trace       the reads of an index in other orders: written down, predicted, and done"""
