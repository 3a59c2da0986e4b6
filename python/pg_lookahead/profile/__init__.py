"""Function profiles: recording them on a server, reading, comparing and drawing them.

docs/profiles.md describes what is measured, and the two formats of files."""
