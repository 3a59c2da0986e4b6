"""What many servers tell of their reads, in one report: ``pg_lookahead report``."""
