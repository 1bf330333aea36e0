"""The aggregates a window can compute, the types they take and give.

The truth for every result is a plain Spark batch query, so the rules are Spark's:

- nulls are skipped, so `count` counts values and `size` counts rows. An aggregate of nothing but nulls is null, also
  `sum`; `count` and `nunique` are then 0.
- NaN is a value: it makes sums, means and deviations NaN, it is greater than every number in `max` and `quantile`, and
  all NaN are one value for `nunique` and in keys. 0.0 and -0.0 are one value too.
- whole numbers are summed in int64 (`SumOverflow` rather than a wrong sum), decimals stay decimals with Spark's
  precision: `sum` of decimal(p, s) is decimal(p + 10, s), `mean` is decimal(p + 4, s + 4).
- `std` has one degree of freedom less than values (`stddev_samp`), so that of one value is null.
- `quantile` is exact and interpolates linearly, as Spark's `percentile`.
- `first` and `last` are the non-null values with the least and the greatest event time; of several with the same time,
  the one that arrived first, or last. (Spark's own depend on the order of its shuffle.)
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from workbench.errors import InvalidAggregate, WrongType
from workbench.windows.grouping import canonical_type


@dataclass(frozen=True)
class Aggregate:
    """What to compute of a column: a name of `AGGREGATES`, and for a quantile which one."""

    name: str
    fraction: float | None = None

    def __str__(self) -> str:
        return self.name if self.fraction is None else f"{self.name}({self.fraction:g})"


COMPONENTS: dict[str, tuple[str, ...]] = {
    "size": (),
    "count": ("count",),
    "sum": ("sum",),
    "min": ("min",),
    "max": ("max",),
    "mean": ("total", "count"),
    "std": ("moments",),
    "first": ("first",),
    "last": ("last",),
    "nunique": ("values",),
    "quantile": ("values",),
}
"""Which mergeable components each aggregate is computed from; aggregates of one column share them."""

AGGREGATES = tuple(sorted(COMPONENTS))


def quantile(fraction: float) -> Aggregate:
    """The exact quantile with linear interpolation, as Spark's `percentile`; 0.5 is the median.

    Raises `InvalidAggregate` unless `fraction` is from 0 to 1.
    """
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
        raise InvalidAggregate.not_a_fraction(fraction)
    return Aggregate("quantile", float(fraction))


def resolve(aggregate: str | Aggregate, output: str) -> Aggregate:
    """The aggregate that `output` is to be. Raises `InvalidAggregate` if there is no such one."""
    found = Aggregate(aggregate) if isinstance(aggregate, str) else aggregate
    if not isinstance(found, Aggregate) or found.name not in COMPONENTS:
        raise InvalidAggregate.unknown(output, aggregate, AGGREGATES)
    if found.name == "quantile" and found.fraction is None:
        raise InvalidAggregate.without_fraction(output)
    return found


def result_type(aggregate: Aggregate, column: str, kind: pa.DataType) -> pa.DataType:
    """The type of the aggregate of a column of type `kind`. Raises `WrongType` if it has none."""
    kind, types = canonical_type(kind), pa.types
    name = aggregate.name
    if name in ("size", "count"):
        return pa.int64()
    if name in ("first", "last"):
        return kind
    nested = types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType)
    if name == "nunique":
        if nested:
            raise WrongType.of_aggregate(str(aggregate), column, str(kind), "values that can be compared")
        return pa.int64()
    if name in ("min", "max"):
        if nested or types.is_duration(kind) or types.is_interval(kind):
            raise WrongType.of_aggregate(str(aggregate), column, str(kind), "values that have an order")
        return kind
    whole = types.is_integer(kind) or types.is_boolean(kind)
    if not (whole or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind)):
        raise WrongType.of_aggregate(str(aggregate), column, str(kind), "numbers")
    if types.is_decimal256(kind):
        raise WrongType.of_aggregate(str(aggregate), column, str(kind), "decimals of at most 38 digits")
    if types.is_decimal(kind) and name == "sum":
        return pa.decimal128(min(kind.precision + 10, 38), kind.scale)
    if types.is_decimal(kind) and name == "mean":
        return pa.decimal128(min(kind.precision + 4, 38), min(kind.scale + 4, 38))
    return pa.int64() if whole and name == "sum" else pa.float64()
