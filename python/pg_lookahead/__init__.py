"""The command-line tool of pg_lookahead, and the private servers it works on."""

from importlib.metadata import version

__version__ = version("pg_lookahead")
