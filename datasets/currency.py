"""Transactions in many currencies, and the small table of symbols they need: Samza's example of a bootstrap stream.

A transaction can only be shown as "$1234" once the symbol of its currency has been read, so the table must be read
whole before the first transaction is processed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datasets import _streams
from datasets._random import Draws
from datasets.synthetic import START_MS, disordered, even_times, instants

if TYPE_CHECKING:
    from workbench.systems.log import StreamLog

_CURRENCIES = (
    ("USD", "$", "US dollar"),
    ("EUR", "€", "Euro"),
    ("JPY", "¥", "Japanese yen"),
    ("GBP", "£", "Pound sterling"),
    ("CNY", "元", "Renminbi"),
    ("AUD", "A$", "Australian dollar"),
    ("CAD", "C$", "Canadian dollar"),
    ("CHF", "Fr", "Swiss franc"),
    ("INR", "₹", "Indian rupee"),
    ("KRW", "₩", "South Korean won"),
    ("BRL", "R$", "Brazilian real"),
    ("SEK", "kr", "Swedish krona"),
    ("PLN", "zł", "Polish złoty"),
    ("TRY", "₺", "Turkish lira"),
    ("ILS", "₪", "Israeli new shekel"),
    ("THB", "฿", "Thai baht"),
    ("VND", "₫", "Vietnamese đồng"),
    ("NGN", "₦", "Nigerian naira"),
    ("UAH", "₴", "Ukrainian hryvnia"),
    ("PHP", "₱", "Philippine peso"),
)
_HOUR_MS = 3_600_000


def codes() -> pa.Table:
    """Twenty currencies: `code` (ISO 4217), `symbol`, `name`. There is no event time."""
    return pa.table(dict(zip(("code", "symbol", "name"), map(list, zip(*_CURRENCIES, strict=True)), strict=True)))


def transactions(
    n: int = 100_000, *, disorder_ms: int = 30_000, seed: int = 0, duration_ms: int = _HOUR_MS, start_ms: int = START_MS
) -> pa.Table:
    """`n` transactions in order of arrival, the same bytes for the same arguments.

    Columns: `event_time` (`timestamp[us, UTC]`), `transaction_id` (int64, unique), `code` (the first of `codes` are far
    more frequent than the last) and `amount` (int64 in 1 to 10,000, in whole units of the currency). Each arrives less
    than `disorder_ms` after its event time.
    """
    draws = Draws(seed)
    return pa.table(
        {
            "event_time": instants(disordered(even_times(n, start_ms, duration_ms), disorder_ms, draws)),
            "transaction_id": np.arange(n, dtype=np.int64),
            "code": codes()["code"].take(pa.array(draws.below(len(_CURRENCIES), n, skew=2))).combine_chunks(),
            "amount": 1 + draws.below(10_000, n, skew=2),
        }
    )


def write(
    log: StreamLog,
    transactions: pa.Table,
    stream: str = "transactions",
    codes_stream: str = "currency-codes",
    *,
    partitions: int = 4,
    end: bool = True,
    batch_rows: int = 20_000,
) -> int:
    """Append `transactions` to `stream` and `codes` to `codes_stream`; return the number of messages of both.

    Both are partitioned by currency in the same way, so the task that gets a transaction also gets its symbol. The
    frequent currencies make some partitions far larger than others.
    """
    symbols = codes()
    known = symbols["code"].combine_chunks()
    return sum(
        _streams.append(
            log,
            name,
            table,
            pc.index_in(table["code"], known).to_numpy() % partitions,
            partitions,
            end=end,
            batch_rows=batch_rows,
            time_column=time_column,
        )
        for name, table, time_column in ((codes_stream, symbols, None), (stream, transactions, "event_time"))
    )
