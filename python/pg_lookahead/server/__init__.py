"""Servers: private ones, and those of the user's own.

installation  which PostgreSQL to run
home          the private directory of this process
reap          what ends servers that lost their process
cluster       a private server
dsn           connection strings, and connections to servers of the user's own
catalogs      how databases of others are asked, so that no code of theirs runs
target        a server that is measured, private or not
cache         how relations are made cold
environment   facts about the machine and the server
latency       a mount where reads take longer
"""
