"""The command-line tool of pg_lookahead, and the private servers it works on."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("pg_lookahead")
except PackageNotFoundError:  # the sources alone, not installed
    __version__ = "unknown"
