"""What is seen of SQL and schemas without Spark."""

import pytest

from ottla.spark.pipelines.schema_text import problem_of_schema
from ottla.spark.pipelines.sql_text import problem_of_sql, relations_in_sql

KNOWN = ["a", "b", "c", "orders", "src"]


@pytest.mark.parametrize(
    ("sql", "read"),
    [
        ("SELECT x AS b FROM src", ["src"]),
        ("SELECT a, b FROM Orders AS c WHERE c.b > 1", ["orders"]),
        ("select * from a, b x, c", ["a", "b", "c"]),
        ("SELECT * FROM a AS x(b, c), b", ["a", "b"]),
        ("SELECT o.a FROM orders o LEFT JOIN c ON o.a = c.b", ["c", "orders"]),
        ("SELECT * FROM (a JOIN b)", ["a", "b"]),
        ("SELECT * FROM (SELECT * FROM a) b WHERE x IN (SELECT y FROM c)", ["a", "c"]),
        ("SELECT * FROM ((SELECT * FROM a) UNION (SELECT * FROM b))", ["a", "b"]),
        ("SELECT (SELECT max(x) FROM b) FROM a", ["a", "b"]),
        ("SELECT * FROM a JOIN LATERAL (SELECT * FROM b) z", ["a", "b"]),
        ("SELECT extract(YEAR FROM b), trim(BOTH 'x' FROM c) FROM a", ["a"]),
        ("SELECT * FROM a WHERE x IS DISTINCT FROM b", ["a"]),
        ("WITH a AS (SELECT * FROM src), b(x) AS (SELECT 1) SELECT * FROM a, b, c", ["c", "src"]),
        ("SELECT explode(c) FROM a LATERAL VIEW explode(c) t AS b", ["a"]),
        (
            "SELECT window(at, '1 minute') FROM orders GROUP BY window(at, '1 minute'), b",
            ["orders"],
        ),
        ("SELECT * FROM `a` -- and from b\n/* FROM c */ WHERE x = 'FROM c'", ["a"]),
        ("SELECT a.b FROM other.a", []),
        ("SELECT a FROM range(3)", []),
        ("FROM a |> WHERE x |> JOIN b ON true", ["a", "b"]),
        ("TABLE a", ["a"]),
        ("SELECT a FORM b", []),
    ],
)
def test_what_is_read_stands_where_relations_stand(sql: str, read: list[str]) -> None:
    assert list(relations_in_sql(sql, KNOWN)) == read


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT '(' FROM a", None),
        ("with a as (select 1) select * from a", None),
        ("(SELECT 1)", None),
        ("SELEC a FROM b", "'SELEC' does not begin a query"),
        ("", "there is nothing"),
        ("SELECT (a FROM b", "'(' is not closed"),
        ("SELECT a) FROM b", "')' without '('"),
        ("SELECT 'a FROM b", "a quote is not closed"),
    ],
)
def test_slips_of_the_pen_in_sql(sql: str, problem: str | None) -> None:
    found = problem_of_sql(sql)
    assert found == problem if problem is None else problem in (found or "")


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("id INT, name string", None),
        ("a: INT, `b c` DOUBLE NOT NULL COMMENT 'x, y>'", None),
        ("d DECIMAL(10, 2), i INTERVAL DAY TO SECOND, t TIMESTAMP_NTZ", None),
        ("a ARRAY<INT>, m MAP<STRING, ARRAY<STRUCT<x: DECIMAL(10,2), y STRING>>>", None),
        ("s STRUCT<>", None),
        ("id INTT", "'INTT' is not a type"),
        ("a STRUCT<x: INT, y: STRNG>", "'STRNG' is not a type"),
        ("a MAP<STRING, BOOL>", "'BOOL' is not a type"),
        ("a MAP<STRING>", "does not have the types"),
        ("a ARRAY", "does not say of what"),
        ("a ARRAY<INT", "do not match"),
        ("id", "'id' is not a name and a type"),
        ("id INT,", "a field is missing"),
        ("", "a field is missing"),
    ],
)
def test_mistakes_in_schemas(schema: str, problem: str | None) -> None:
    found = problem_of_schema(schema)
    assert found == problem if problem is None else problem in (found or "")
