"""The program ``pg_lookahead``, which is also ``python -m pg_lookahead``."""

import sys


def main() -> None:
    """Run it; Ctrl-C ends it also while its modules are loaded."""
    try:
        from .cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
