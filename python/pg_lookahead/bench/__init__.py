"""``pg_lookahead bench``: how much look-ahead helps on this machine's storage."""
