"""Filter expressions decide row by row, and do nothing else."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

from workbench.errors import InvalidExpression
from workbench.graph import Application
from workbench.graph.expressions import checked_expression

FRAME = pa.table(
    {
        "x": [1, 2, None, 4],
        "key": ["a", "b", None, "it's"],
        "dep delay": [1.5, -2.0, 0.0, 9.0],
        "_hidden": [1, 2, 3, 4],
        "at": pa.array([0, 3_600_000, 7_200_000, 10_800_000], pa.timestamp("ms")),
    }
).to_pandas(types_mapper=pd.ArrowDtype)


@pytest.mark.parametrize(
    ("expression", "kept"),
    [
        ("x > 1", 2),
        ("1 <= x < 4 and not key == 'a'", 1),
        ("x > 1 | key == 'a'", 3),
        ("`dep delay` > 0", 2),
        ('key == "it\'s"', 1),
        ("key in ['a', 'b']", 2),
        ("key.isin(['a', 'b']) & ~x.isna()", 2),
        ("key.str.startswith('i')", 1),
        ("key.str[0] == 'i'", 1),
        ("at.dt.hour >= 2", 2),
        ("at >= '1970-01-01 02:00'", 2),
        ("x.between(2, 4)", 2),
        ("_hidden * 2 > 4", 2),
        ("sqrt(_hidden) > 1.5", 2),
        ("abs(`dep delay`) == 2", 1),
    ],
)
def test_what_decides_row_by_row_may_be_written_and_pandas_reads_it(expression: str, kept: int) -> None:
    mask = FRAME.eval(checked_expression(expression), engine="python", local_dict={}, global_dict={})
    assert int(mask.fillna(False).sum()) == kept


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("x > @limit", r"variables \(@name\)"),
        ("x @ limit", r"variables \(@name\)"),
        ("x = 2", "to compare, write '=='"),
        ("x >", "can not be read"),
        ("x > 1\ny > 2", "can not be read"),
        ("  ", "empty"),
        ("key.to_pickle('/tmp/x').isna()", r"the method to_pickle\(\)"),
        ("x == x.max()", r"the method max\(\)"),
        ("x.shift(1) > 2", r"the method shift\(\)"),
        ("key.str.__class__", "the attribute .__class__"),
        ("key.str.__init__(1)", "the attribute .__init__"),
        ("key.__class__.__mro__", "the attribute"),
        ("key.values", "the attribute .values"),
        ("eval('1')", r"the function eval\(\)"),
        ("x[0] > 1", "Subscript"),
        ("(lambda: 1)()", "Lambda|Call"),
        ("[y for y in x]", "ListComp"),
        ("key.isin(open('/etc/passwd'))", r"the function open\(\)"),
    ],
)
def test_what_goes_further_is_refused_where_it_is_declared(expression: str, sentence: str) -> None:
    with pytest.raises(InvalidExpression, match=sentence):
        Application("app").input("s").filter(expression)
