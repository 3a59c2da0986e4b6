\echo Use "CREATE EXTENSION pg_lookahead" to load this file. \quit
