"""The tables of a web shop, and twenty statements that its pages, its API and its reports send.

Keys are uuids, as applications make them; documents are jsonb; each foreign key has an index.  The
statements have the forms that ORMs and API generators write: chains from one row, lists of keys, pages by
keyset, LATERAL for the latest row and for JSON of children, scalar subqueries, EXISTS, feeds and counts.
"""

from collections.abc import Callable

from ..server.catalogs import Connection
from ..server.queries import run
from .cells import SCHEMA

ROWS = 3_000_000
"""Rows of the largest table, ``lines``, in a run of the usual size."""

_ONE_IN = {
    "customers": 20,
    "addresses": 10,
    "products": 40,
    "purchases": 3,
    "lines": 1,
    "reviews": 6,
    "events": 2,
}
"""How many lines there are for each row of a table."""

TABLES = tuple(_ONE_IN)

_INDEXES = {
    "customers": ("(email)", "(city)"),
    "addresses": ("(customer_id)",),
    "products": ("(sku text_pattern_ops)", "(category, price)"),
    "purchases": (
        "(customer_id, created)",
        "(created, id)",
        "(address_id)",
        "(created) WHERE status = 'open'",
    ),
    "lines": ("(order_id)", "(product_id)"),
    "reviews": ("(product_id, created)", "(customer_id)"),
    "events": ("(customer_id, created)",),
}
"""Besides the primary key ``id``."""


def _key(table: str, number: str) -> str:
    """Return an expression for the key of a table's row of that number."""
    return f"md5('{table}' || {number})::uuid"


def _random(seed: int, most: int) -> str:
    """Return an expression for a number below ``most`` that depends on a row's number ``i``."""
    return f"(hashint8extended(i, {seed}) & {2**50 - 1}) % {most}"


def _columns(rows: int) -> dict[str, str]:
    """Return, for each table, its columns as expressions of a row's number ``i``.

    rows: of ``lines``"""
    many = {table: rows // one_in for table, one_in in _ONE_IN.items()}

    def random_key(table: str, seed: int) -> str:
        return _key(table, f"({_random(seed, many[table])})")

    def created(table: str) -> str:
        return f"timestamptz '2026-01-01 00:00Z' + i * (interval '365 days' / {many[table]}) AS created"

    own = {table: f"{_key(table, 'i')} AS id" for table in many}
    inhabitant = _key("customers", f"(i % {many['customers']})")
    return {
        "customers": f"{own['customers']}, 'customer' || i || '@example.com' AS email,"
        f" 'city ' || {_random(1, 500)} AS city, {created('customers')},"
        " jsonb_build_object('level', i % 5, 'note', repeat('n', 120)) AS profile",
        "addresses": f"{own['addresses']}, {inhabitant} AS customer_id,"
        " 'street ' || i AS street, repeat('a', 60) AS line",
        "products": f"{own['products']}, 'SKU' || lpad((i * 7919 % {many['products']})::text, 8, '0') AS sku,"
        f" ({_random(2, 200)})::int AS category, ({_random(3, 10_000)}) / 100.0 AS price,"
        " jsonb_build_object('colour', i % 12, 'weight', i % 700, 'text', repeat('t', 300)) AS attributes",
        "purchases": f"{own['purchases']}, {random_key('customers', 4)} AS customer_id,"
        f" {random_key('addresses', 5)} AS address_id, {created('purchases')},"
        f" CASE WHEN {_random(6, 100)} = 0 THEN 'open' ELSE 'shipped' END AS status,"
        f" ({_random(7, 50_000)}) / 100.0 AS total",
        "lines": f"{own['lines']}, {_key('purchases', '(i / 3)')} AS order_id,"
        f" {random_key('products', 8)} AS product_id, ({_random(9, 5)})::int + 1 AS quantity,"
        f" ({_random(10, 10_000)}) / 100.0 AS price",
        "reviews": f"{own['reviews']}, {random_key('products', 11)} AS product_id,"
        f" {random_key('customers', 12)} AS customer_id, {created('reviews')},"
        f" ({_random(13, 5)})::int + 1 AS rating, repeat('r', 150) AS body",
        "events": f"{own['events']}, {random_key('customers', 14)} AS customer_id, {created('events')},"
        f" 'kind ' || {_random(15, 8)} AS kind, jsonb_build_object('page', i % 977) AS payload",
    }


def _keys(table: str, n: int) -> str:
    """Return an array of n keys of a table, as a list that a client sends with a statement."""
    return f"ARRAY(SELECT {_key(table, '(i * 7)')} FROM generate_series(1, {n}) AS i)"


_MARCH = "'2026-03-01 00:00Z'"

QUERIES = {
    "order page": f"""
SELECT o.id, c.email, a.street, l.quantity, p.sku, p.price
FROM purchases o JOIN customers c ON c.id = o.customer_id JOIN addresses a ON a.id = o.address_id
     JOIN lines l ON l.order_id = o.id JOIN products p ON p.id = l.product_id
WHERE o.id = {_key("purchases", "4711")} ORDER BY l.id""",
    "orders of a customer": f"""
SELECT id, created, status, total FROM purchases
WHERE customer_id = {_key("customers", "77")} ORDER BY created DESC LIMIT 20""",
    "next page by keyset": f"""
SELECT id, created, total FROM purchases
WHERE (created, id) > ({_MARCH}, '00000000-0000-0000-0000-000000000000') ORDER BY created, id LIMIT 500""",
    "products of a cart": f"""
SELECT id, sku, price, attributes ->> 'colour' AS colour FROM products
WHERE id = ANY ({_keys("products", 100)}) ORDER BY id""",
    "orders by a list of keys": f"""
SELECT id, status, total FROM purchases WHERE id = ANY ({_keys("purchases", 500)}) ORDER BY id""",
    "latest order of customers": """
SELECT c.id, c.email, o.created, o.total
FROM (SELECT id, email FROM customers WHERE city = 'city 7' ORDER BY id LIMIT 300) c,
     LATERAL (SELECT created, total FROM purchases WHERE customer_id = c.id ORDER BY created DESC LIMIT 1) o
ORDER BY c.id""",
    "orders with lines as JSON": f"""
SELECT o.id, l.lines FROM (SELECT id FROM purchases WHERE id = ANY ({_keys("purchases", 200)})) o,
     LATERAL (SELECT json_agg(json_build_object('product', product_id, 'quantity', quantity) ORDER BY id)
                     AS lines
              FROM lines WHERE order_id = o.id) l
ORDER BY o.id""",
    "counts by subqueries": """
SELECT p.id, p.sku, (SELECT count(*) FROM reviews r WHERE r.product_id = p.id) AS reviews,
       (SELECT avg(rating) FROM reviews r WHERE r.product_id = p.id) AS rating
FROM products p WHERE category = 17 ORDER BY price, id LIMIT 100""",
    "customers with an open order": """
SELECT c.id, c.email FROM customers c
WHERE city = 'city 9'
      AND EXISTS (SELECT FROM purchases o WHERE o.customer_id = c.id AND o.status = 'open')
ORDER BY c.id""",
    "products nobody reviewed well": """
SELECT p.id, p.sku FROM products p
WHERE category = 21 AND NOT EXISTS (SELECT FROM reviews r WHERE r.product_id = p.id AND r.rating = 5)
ORDER BY p.id""",
    "reviews of a product": f"""
SELECT r.created, r.rating, r.body, c.email FROM reviews r JOIN customers c ON c.id = r.customer_id
WHERE r.product_id = {_key("products", "99")} ORDER BY r.created DESC LIMIT 50""",
    "feed of many customers": f"""
SELECT e.created, e.id, e.kind FROM unnest({_keys("customers", 200)}) f (id),
     LATERAL (SELECT id, created, kind FROM events
              WHERE customer_id = f.id ORDER BY created DESC LIMIT 5) e
ORDER BY e.created DESC, e.id LIMIT 50""",
    "history of a customer": f"""
SELECT created, 'order' AS what, id FROM purchases WHERE customer_id = {_key("customers", "123")}
UNION ALL SELECT created, kind, id FROM events WHERE customer_id = {_key("customers", "123")}
UNION ALL SELECT created, 'review', id FROM reviews WHERE customer_id = {_key("customers", "123")}
ORDER BY created, id""",
    "sales of a day by category": f"""
SELECT p.category, count(*), sum(l.quantity * l.price)
FROM purchases o JOIN lines l ON l.order_id = o.id JOIN products p ON p.id = l.product_id
WHERE o.created >= {_MARCH} AND o.created < timestamptz {_MARCH} + interval '1 day'
GROUP BY p.category ORDER BY p.category""",
    "bought together": f"""
SELECT other.product_id, count(*) FROM lines l JOIN lines other USING (order_id)
WHERE l.product_id = {_key("products", "42")} AND other.product_id <> l.product_id
GROUP BY other.product_id ORDER BY count(*) DESC, other.product_id LIMIT 20""",
    "bestsellers of a week": f"""
SELECT l.product_id, sum(l.quantity) FROM purchases o JOIN lines l ON l.order_id = o.id
WHERE o.created >= {_MARCH} AND o.created < timestamptz {_MARCH} + interval '7 days'
GROUP BY l.product_id ORDER BY sum(l.quantity) DESC, l.product_id LIMIT 20""",
    "open orders to be reminded": f"""
SELECT o.id, o.created, c.email, c.profile ->> 'level' AS level
FROM purchases o JOIN customers c ON c.id = o.customer_id
WHERE o.status = 'open' AND o.created < {_MARCH} ORDER BY o.created, o.id LIMIT 300""",
    "documents of a category": """
SELECT id, attributes ->> 'weight' AS weight FROM products
WHERE category BETWEEN 30 AND 34 AND attributes ->> 'colour' = '3' ORDER BY id""",
    "search by a prefix": """
SELECT p.sku, p.price, (SELECT max(created) FROM reviews r WHERE r.product_id = p.id) AS reviewed
FROM products p WHERE sku LIKE 'SKU0000%' ORDER BY sku LIMIT 50""",
    "customers of a city": """
SELECT c.id, count(o.id), sum(o.total) FROM customers c LEFT JOIN purchases o ON o.customer_id = c.id
WHERE c.city = 'city 11' GROUP BY c.id ORDER BY c.id""",
}


def load(conn: Connection, rows: int, report: Callable[[str], None]) -> None:
    """Make the tables in our schema; the largest one has that number of rows."""
    for table, columns in _columns(rows).items():
        report(f"loading the table {table}")
        name = f"{SCHEMA}.{table}"
        last = rows // _ONE_IN[table] - 1
        run(conn, f"CREATE TABLE {name} AS SELECT {columns} FROM generate_series(0, {last}) AS i")
        report(f"building the indexes of {table}")
        run(conn, f"ALTER TABLE {name} ADD PRIMARY KEY (id)")
        run(conn, *(f"CREATE INDEX ON {name} {index}" for index in _INDEXES[table]))
        run(conn, f"VACUUM (FREEZE, ANALYZE) {name}")
