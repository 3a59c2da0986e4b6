-- pgstatbloomindex has no counterpart in contrib: its figures are held
-- against the pages themselves, and its rate against searches.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_lookahead;
CREATE EXTENSION IF NOT EXISTS bloom;
CREATE EXTENSION IF NOT EXISTS pageinspect;
CREATE SCHEMA diagnostics_bloom;
SET search_path = diagnostics_bloom, public;

-- The sums, taken from raw pages (little-endian): the last eight bytes of a
-- page are the number of entries, flags, a filler and the page id.
CREATE FUNCTION from_pages(index regclass, OUT pages bigint, OUT deleted_pages bigint,
    OUT live_tuples bigint, OUT bits_set bigint) LANGUAGE plpgsql AS $$
DECLARE
    page bytea;
    size int := current_setting('block_size')::int;
    words int;
    entries int;
BEGIN
    pages := pg_relation_size(index) / size;
    deleted_pages := 0;
    live_tuples := 0;
    bits_set := 0;
    page := get_raw_page(index::text, 'main', 0);
    -- after the header (24): magic, list start and end, options length
    words := get_byte(page, 24 + 12) + 256 * get_byte(page, 24 + 13);
    FOR block IN 1 .. pages - 1 LOOP
        page := get_raw_page(index::text, 'main', block);
        IF get_byte(page, size - 6) & 2 <> 0 THEN
            deleted_pages := deleted_pages + 1;
            CONTINUE;
        END IF;
        entries := get_byte(page, size - 8) + 256 * get_byte(page, size - 7);
        live_tuples := live_tuples + entries;
        FOR i IN 0 .. entries - 1 LOOP
            bits_set := bits_set + bit_count(substr(page, 25 + i * (6 + 2 * words) + 6, 2 * words));
        END LOOP;
    END LOOP;
END $$;
CREATE FUNCTION compare(index regclass, OUT pages bool, OUT deleted_pages bool,
    OUT live_tuples bool, OUT signature_fill bool) LANGUAGE sql AS $$
    SELECT ours.pages = raw.pages, ours.deleted_pages = raw.deleted_pages,
           ours.live_tuples = raw.live_tuples,
           abs(ours.signature_fill - raw.bits_set::float8 / raw.live_tuples / ours.signature_bits) < 1e-12
    FROM lookahead.pgstatbloomindex(index) AS ours, from_pages(index) AS raw
$$;

CREATE TABLE t (a int, b int, c text) WITH (autovacuum_enabled = off);
CREATE INDEX t_empty ON t USING bloom (a);
SELECT * FROM lookahead.pgstatbloomindex('t_empty');
DROP INDEX t_empty;

INSERT INTO t SELECT i, i % 100, 'text ' || i FROM generate_series(1, 5000) AS i;
CREATE INDEX t_default ON t USING bloom (a, b, c);
CREATE INDEX t_options ON t USING bloom (a, c) WITH (length = 33, col1 = 7, col2 = 1);
CREATE INDEX t_long ON t USING bloom (b) WITH (length = 4096, col1 = 4095);
SELECT i AS index, c.* FROM unnest('{t_default,t_options,t_long}'::regclass[]) AS i, compare(i) AS c;
SELECT i AS index, signature_bits, column_bits,
       signature_fill BETWEEN 0.03 AND 0.9 AS fill,
       array_length(false_positive_rate, 1) AS rates
FROM unnest('{t_default,t_options,t_long}'::regclass[]) AS i, lookahead.pgstatbloomindex(i);

-- NULLs set no bits.
CREATE TABLE nulls (a int, b int) WITH (autovacuum_enabled = off);
INSERT INTO nulls SELECT NULL, NULL FROM generate_series(1, 100);
CREATE INDEX nulls_ab ON nulls USING bloom (a, b);
SELECT live_tuples, signature_fill, false_positive_rate FROM lookahead.pgstatbloomindex('nulls_ab');

-- free space: what is not taken by 16-byte entries (TID and 5 words)
SELECT free_space = (pages - 1) * (current_setting('block_size')::int - 24 - 8) - live_tuples * 16 AS adds_up
FROM lookahead.pgstatbloomindex('t_default');

-- deleted pages
DELETE FROM t WHERE a <= 2500;
VACUUM (INDEX_CLEANUP on) t;
SELECT deleted_pages > 0 AS has_deleted_pages FROM lookahead.pgstatbloomindex('t_default');
SELECT i AS index, c.* FROM unnest('{t_default,t_options,t_long}'::regclass[]) AS i, compare(i) AS c;
INSERT INTO t SELECT i, i % 100, 'text ' || i FROM generate_series(1, 2500) AS i;
SELECT i AS index, c.* FROM unnest('{t_default,t_options,t_long}'::regclass[]) AS i, compare(i) AS c;

-- Temporary and unlogged.
CREATE TEMP TABLE tt AS SELECT * FROM t;
CREATE INDEX tt_bloom ON tt USING bloom (a, b, c);
CREATE UNLOGGED TABLE u AS SELECT * FROM t;
CREATE INDEX u_bloom ON u USING bloom (a, b, c);
SELECT i AS index, o.live_tuples, o.signature_fill = d.signature_fill AS same_fill
FROM unnest('{tt_bloom,u_bloom}'::regclass[]) AS i, lookahead.pgstatbloomindex(i) AS o,
     lookahead.pgstatbloomindex('t_default') AS d;

-- The rate: search for values that are not there, and count what the index
-- returns nevertheless.
CREATE FUNCTION returned(column_name text, searches int) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
    plan json;
    rows float8 := 0;
BEGIN
    FOR i IN 1 .. searches LOOP
        EXECUTE format('EXPLAIN (ANALYZE, TIMING off, FORMAT json) SELECT * FROM t WHERE %I = %L',
                       column_name, (-i)::text) INTO plan;
        ASSERT plan->0->'Plan'->'Plans'->0->>'Index Name' = 't_default', plan::text;
        rows := rows + (plan->0->'Plan'->'Plans'->0->>'Actual Rows')::float8;
    END LOOP;
    RETURN rows / searches;
END $$;
DROP INDEX t_options, t_long;
SET enable_seqscan = off;
SELECT 'a' AS column, returned('a', 200) / (live_tuples * false_positive_rate[1]) BETWEEN 0.8 AND 1.25 AS as_expected
FROM lookahead.pgstatbloomindex('t_default')
UNION ALL
SELECT 'c', returned('c', 200) / (live_tuples * false_positive_rate[3]) BETWEEN 0.8 AND 1.25
FROM lookahead.pgstatbloomindex('t_default');

DROP SCHEMA diagnostics_bloom CASCADE;
