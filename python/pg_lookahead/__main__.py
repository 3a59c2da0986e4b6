"""The program ``pg_lookahead``, which is also ``python -m pg_lookahead``."""

import sys

from .server.signals import end_on_signals


def main() -> None:
    """Run it; a signal ends it also while its modules are loaded."""
    end_on_signals()
    try:
        from .cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
