--
-- heap_block_order: the heap blocks of a btree's entries, in key order, must be those
-- that an index scan visits.
--
\pset format unaligned
\pset tuples_only on
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_lookahead;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_sort = off;

CREATE TABLE block_order (id int, k int, t text COLLATE "C", n name, d numeric(8, 2), a int[],
    pad text DEFAULT repeat('x', 200));
INSERT INTO block_order
    SELECT i, CASE WHEN i % 100 <> 0 THEN (i * 7919) % 3000 END, 'k' || i % 50, 'n' || i % 7, i % 200 / 4.0, ARRAY[i % 30, i]
    FROM generate_series(1, 3000) AS i;
CREATE INDEX block_order_k ON block_order (k);
CREATE INDEX block_order_k_desc ON block_order (k DESC NULLS LAST, id);
CREATE INDEX block_order_t ON block_order (t);
CREATE INDEX block_order_n ON block_order (n);
CREATE INDEX block_order_d ON block_order (d);
CREATE INDEX block_order_a ON block_order (a);
CREATE INDEX block_order_expr ON block_order ((k % 100)) WHERE id > 1000;
CREATE INDEX block_order_hash ON block_order USING hash (k);
VACUUM ANALYZE block_order;

-- Entries on which the function and a query (which must run as an index scan) disagree.
CREATE FUNCTION differs(index regclass, query text, lower text = NULL, upper text = NULL, max bigint = NULL)
RETURNS TABLE (entries bigint, differences bigint) LANGUAGE plpgsql AS $$
DECLARE
    line text;
    ok boolean := false;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS off) ' || query LOOP
        ok := ok OR line ~ ('Index Scan( Backward)? using ' || index || ' ');
    END LOOP;
    IF NOT ok THEN
        RAISE 'not an index scan of %', index;
    END IF;
    RETURN QUERY EXECUTE format('SELECT count(*), count(*) FILTER (WHERE o.block IS DISTINCT FROM s.block)
        FROM (SELECT row_number() OVER () AS entry, ((c::text)::point)[0]::bigint AS block FROM (%s) AS q (c)) AS s
        FULL JOIN lookahead.heap_block_order($1, $2, $3, $4) AS o USING (entry)', query)
    USING index, lower, upper, max;
END $$;

\set ECHO all
SELECT * FROM differs('block_order_k', 'SELECT ctid FROM block_order ORDER BY k');
SELECT * FROM differs('block_order_k', 'SELECT ctid FROM block_order WHERE k >= 100 ORDER BY k', '100');
SELECT * FROM differs('block_order_k', 'SELECT ctid FROM block_order WHERE k <= 100 ORDER BY k', NULL, '100');
SELECT * FROM differs('block_order_k', 'SELECT ctid FROM block_order WHERE k BETWEEN 100 AND 200 ORDER BY k', '100', '200');
SELECT * FROM differs('block_order_k', 'SELECT ctid FROM block_order WHERE k >= 100 ORDER BY k LIMIT 70', '100', NULL, 70);
SELECT * FROM differs('block_order_k_desc', 'SELECT ctid FROM block_order ORDER BY k DESC NULLS LAST, id');
SELECT * FROM differs('block_order_k_desc', 'SELECT ctid FROM block_order WHERE k BETWEEN 100 AND 200 ORDER BY k DESC NULLS LAST, id', '100', '200');
-- posting lists, a type that the index stores in another form, a type modifier, arrays
SELECT * FROM differs('block_order_t', 'SELECT ctid FROM block_order WHERE t BETWEEN ''k2'' AND ''k30'' ORDER BY t', 'k2', 'k30');
SELECT * FROM differs('block_order_n', 'SELECT ctid FROM block_order WHERE n >= ''n3'' ORDER BY n', 'n3');
SELECT * FROM differs('block_order_d', 'SELECT ctid FROM block_order WHERE d BETWEEN 10.123 AND 11 ORDER BY d', '10.123', '11');
SELECT * FROM differs('block_order_a', 'SELECT ctid FROM block_order WHERE a BETWEEN ''{3}'' AND ''{5}'' ORDER BY a', '{3}', '{5}');
SELECT * FROM differs('block_order_expr', 'SELECT ctid FROM block_order WHERE id > 1000 AND k % 100 >= 7 ORDER BY k % 100', '7');

-- nothing
SELECT count(*) FROM lookahead.heap_block_order(NULL);
SELECT count(*) FROM lookahead.heap_block_order('block_order_k', '200', '100');
SELECT count(*) FROM lookahead.heap_block_order('block_order_k', max_entries => 0);
CREATE TEMP TABLE empty (k int PRIMARY KEY);
SELECT count(*) FROM lookahead.heap_block_order('empty_pkey');

-- entries as they stand: those of a deleted row remain, until they are marked or removed
BEGIN;
DELETE FROM block_order WHERE k BETWEEN 100 AND 149;
SELECT count(*) FROM lookahead.heap_block_order('block_order_k', '100', '199');
ROLLBACK;

-- more than fits into work_mem
SET work_mem = '64kB';
SELECT count(*), min(entry), max(entry) FROM lookahead.heap_block_order('block_order_k');
RESET work_mem;

-- what is wrong
SELECT * FROM lookahead.heap_block_order('block_order_hash');
SELECT * FROM lookahead.heap_block_order('block_order');
SELECT * FROM lookahead.heap_block_order('block_order_k', 'abc');
SELECT * FROM lookahead.heap_block_order('block_order_k', max_entries => -1);
CREATE TABLE parted (k int) PARTITION BY RANGE (k);
CREATE INDEX parted_k ON parted (k);
SELECT * FROM lookahead.heap_block_order('parted_k');

-- who may
CREATE ROLE regress_block_order_none;
CREATE ROLE regress_block_order_stat IN ROLE pg_stat_scan_tables;
CREATE ROLE regress_block_order_select;
GRANT SELECT ON block_order TO regress_block_order_select;
SET ROLE regress_block_order_none;
SELECT count(*) FROM lookahead.heap_block_order('block_order_k');
SELECT count(*) FROM lookahead.heap_block_order('block_order_k', '1');
SET ROLE regress_block_order_stat;
SELECT count(*) FROM lookahead.heap_block_order('block_order_k');
SELECT count(*) FROM lookahead.heap_block_order('block_order_k', '1');
SET ROLE regress_block_order_select;
SELECT count(*) FROM lookahead.heap_block_order('block_order_k');
SELECT count(*) FROM lookahead.heap_block_order('block_order_k', upper => '9');
RESET ROLE;
ALTER TABLE block_order ENABLE ROW LEVEL SECURITY;
SET ROLE regress_block_order_select;
SELECT count(*) FROM lookahead.heap_block_order('block_order_k');
RESET ROLE;

DROP TABLE block_order, parted;
DROP FUNCTION differs;
DROP ROLE regress_block_order_none, regress_block_order_stat, regress_block_order_select;
