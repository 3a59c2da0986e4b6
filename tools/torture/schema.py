# ruff: noqa: E501
"""The tables: every kind of index over values that follow from a row's key and version.

A client owns the rows of ``ledger`` that carry its number, keeps a copy of them in ``part``, and has an entry for
each in ``entry``, which foreign keys delete with it.  All
columns but ``touched`` are generated, so that the client can tell for each condition which of its rows must
be found."""

from __future__ import annotations

CLIENTS = (1, 2, 3)
KEYS = 1200
"""A client's keys are 0 to KEYS - 1; about half of them exist."""

ACCOUNTS = 200

A, B, PAD = (
    "(key * 31 + version * 17) % 97",
    "(key * 7 + version * 3 + client) % 61",
    (
        "repeat(md5((client * 10000000::bigint + key * 1000 + version)::text), CASE WHEN key % 10 = 0 THEN 160 ELSE 3 END)"
    ),
)

SCHEMA = f"""
CREATE EXTENSION pg_lookahead;
CREATE EXTENSION bloom;
CREATE EXTENSION amcheck;
CREATE EXTENSION pageinspect;
CREATE EXTENSION pg_buffercache;
CREATE SCHEMA contrib;
CREATE EXTENSION pgstattuple SCHEMA contrib;

CREATE TABLE ledger (
    client int NOT NULL, key int NOT NULL, version int NOT NULL, touched int NOT NULL DEFAULT 0,
    a int GENERATED ALWAYS AS ({A}) STORED,
    b int GENERATED ALWAYS AS ({B}) STORED,
    words int[] GENERATED ALWAYS AS (ARRAY[key % 53, 100 + version % 29, 200 + client]) STORED,
    p point GENERATED ALWAYS AS (point(key % 101, version % 103)) STORED,
    c int GENERATED ALWAYS AS (key % 89) STORED,
    d int GENERATED ALWAYS AS (key * 2) STORED,
    s text GENERATED ALWAYS AS (left(md5((key + version)::text), 8)) STORED,
    pad text GENERATED ALWAYS AS ({PAD}) STORED,
    PRIMARY KEY (client, key)
) WITH (fillfactor = 75);
ALTER TABLE ledger ALTER pad SET STORAGE external;
CREATE INDEX ledger_version ON ledger (version, key) INCLUDE (client);
CREATE INDEX ledger_b ON ledger (b);
CREATE INDEX ledger_hash ON ledger USING hash (a);
CREATE INDEX ledger_gin ON ledger USING gin (words) WITH (gin_pending_list_limit = 64);
CREATE INDEX ledger_gist ON ledger USING gist (p);
CREATE INDEX ledger_spgist ON ledger USING spgist (s);
CREATE INDEX ledger_brin ON ledger USING brin (d) WITH (pages_per_range = 4, autosummarize = on);
CREATE INDEX ledger_bloom ON ledger USING bloom (c);

CREATE TABLE part (client int NOT NULL, key int NOT NULL, version int NOT NULL, PRIMARY KEY (client, key))
    PARTITION BY LIST (client);
{"".join(f"CREATE TABLE part_{c} PARTITION OF part FOR VALUES IN ({c}) WITH (fillfactor = {40 + 20 * c});" for c in CLIENTS)}
CREATE INDEX part_brin ON part USING brin (key);

CREATE TABLE account (id int PRIMARY KEY, branch int NOT NULL, balance bigint NOT NULL, note text)
    WITH (fillfactor = 50);
CREATE INDEX account_branch ON account USING hash (branch);
INSERT INTO account SELECT i, i % 10, 0, repeat('n', i) FROM generate_series(1, {ACCOUNTS}) AS i;

CREATE TABLE entry (client int, key int, account int REFERENCES account,
    FOREIGN KEY (client, key) REFERENCES ledger ON DELETE CASCADE);
CREATE INDEX entry_ledger ON entry (client, key);

CREATE UNLOGGED TABLE fleeting (id int, words int[], p point);
CREATE INDEX fleeting_btree ON fleeting (id);
CREATE INDEX fleeting_hash ON fleeting USING hash (id);
CREATE INDEX fleeting_gin ON fleeting USING gin (words);
CREATE INDEX fleeting_gist ON fleeting USING gist (p);
CREATE INDEX fleeting_bloom ON fleeting USING bloom (id);

CREATE TABLE scratch (generation int, i int PRIMARY KEY, filler text);
CREATE INDEX scratch_gin ON scratch USING gin ((ARRAY[i % 7, generation]));

CREATE FUNCTION stop_in_a_loop(whose int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE r record; n int := 0;
BEGIN
    BEGIN
        FOR r IN SELECT key, version, pad FROM ledger WHERE client = whose AND key >= 0 ORDER BY key LOOP
            n := n + 1;
            IF n = 20 THEN RAISE EXCEPTION 'on purpose'; END IF;
        END LOOP;
    EXCEPTION WHEN raise_exception THEN
        n := -n;
    END;
    RETURN n;
END $$;
ANALYZE;
"""

BTREES = (
    "ledger_pkey",
    "ledger_version",
    "ledger_b",
    "account_pkey",
    "part_1_pkey",
    "scratch_pkey",
    "entry_ledger",
)
TABLES = ("ledger", "account", "part_1", "part_2", "part_3", "scratch", "entry")
"""Permanent tables with rows."""

LOGGED = (
    *(
        *TABLES,
        *BTREES,
        "ledger_hash",
        "ledger_gin",
        "ledger_gist",
        "ledger_spgist",
        "ledger_brin",
        "ledger_bloom",
    ),
    *(
        "account_branch",
        "part_1_key_idx",
        "scratch_gin",
        "pg_class",
        "pg_attribute",
        "pg_depend_reference_index",
    ),
)
"""Relations whose pages are written to the WAL."""

VIOLATIONS = {
    "money is kept": "SELECT sum(balance) FROM account HAVING sum(balance) <> 0",
    "accounts are there": f"SELECT count(*) FROM account HAVING count(*) <> {ACCOUNTS}",
    "two tables agree": "SELECT * FROM ledger l FULL JOIN part p USING (client, key)"
    " WHERE l.version IS DISTINCT FROM p.version",
    "each row has an entry": "SELECT * FROM ledger l FULL JOIN entry e USING (client, key)"
    " WHERE l.version IS NULL OR e.account IS NULL",
    "derived values are right": f"SELECT client, key, version FROM ledger WHERE a <> {A} OR b <> {B} OR pad <> {PAD}"
    " OR NOT p ~= point(key % 101, version % 103)",
    "keys are unique": "SELECT client, key FROM ledger GROUP BY 1, 2 HAVING count(*) > 1",
    "one generation": "SELECT count(*), min(generation), max(generation) FROM scratch"
    " HAVING count(*) <> 0 AND (count(*) <> 100 OR min(generation) <> max(generation))",
}
"""Queries that return rows only if something is wrong, in every snapshot whose tables were locked before."""

LOCK_ALL = "LOCK TABLE ledger, part, entry, account, scratch IN ACCESS SHARE MODE"
"""Before a snapshot is taken that shall see all of a table, since TRUNCATE empties it for older ones too."""
