"""The command-line tool of pg_lookahead, and the private servers it works on."""

__version__ = "1.0.0"
