"""``pg_lookahead try``: a statement of the user on his own server, with look-ahead and without."""
