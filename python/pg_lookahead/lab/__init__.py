"""``pg_lookahead lab``: instruments of those who develop look-ahead."""
