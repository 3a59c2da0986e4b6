"""``python -m pg_lookahead`` is the program ``pg_lookahead``."""

from .cli import main

main()
