"""Servers: private ones, and those of the user's own."""
