"""Function profiles, a tool for developers: recording them on a server, reading and comparing them.

docs/lab.md describes what is measured, and the two formats of files."""
