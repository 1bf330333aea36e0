"""A live source for lessons and tests: a thread that appends rows to a stream, piece by piece, at a given rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from workbench.errors import FeederUsed, FeedTimeout, InvalidOption

if TYPE_CHECKING:
    from workbench.systems.log import Stream


def pieces(
    table: pa.Table, partition_of: npt.NDArray[np.int64], *, piece_rows: int = 500
) -> Iterator[tuple[pa.Table, int]]:
    """`table` in its order, `piece_rows` rows at a time, each as one piece for every partition that has rows among them.

    `partition_of[i]` is the partition of row *i*. Raises `InvalidOption` for pieces without rows.
    """
    if piece_rows < 1:
        raise InvalidOption.not_positive("piece_rows", piece_rows)
    for start in range(0, table.num_rows, piece_rows):
        rows, theirs = table.slice(start, piece_rows), partition_of[start : start + piece_rows]
        for partition in np.unique(theirs).tolist():
            yield rows.filter(pa.array(theirs == partition)), partition


class Feeder:
    """Appends `pieces`, pairs of (rows, partition), to `stream` in the given order, from a thread of its own.

    rows_per_second: the rate over all partitions, on average: a feeder that fell behind catches up.
    end: whether to end the stream, all its partitions, behind the last piece. A feeder that was stopped ends nothing.
    time_column: the event time, as in `Stream.append`.

    Use it in a `with` block, or with `start` and `stop`. What goes wrong in the thread ends it, is kept in `error`, and
    is raised by `wait` and `stop`: a feeder that fails never looks like one that had nothing more to say. Raises
    `InvalidOption` for a rate that is not positive.
    """

    def __init__(
        self,
        stream: Stream,
        pieces: Iterable[tuple[pa.Table, int]],
        *,
        rows_per_second: float,
        end: bool = False,
        time_column: str | None = "event_time",
    ) -> None:
        if not 0 < rows_per_second < float("inf"):
            raise InvalidOption.malformed("rows_per_second", rows_per_second, "a positive number")
        self.stream = stream
        self.rows_per_second = rows_per_second
        self.error: BaseException | None = None
        self._pieces = iter(pieces)
        self._end = end
        self._time_column = time_column
        self._rows = 0
        self._done = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._feed, name=f"feeder of {stream.name}", daemon=True)

    @property
    def rows(self) -> int:
        """Rows appended so far."""
        return self._rows

    @property
    def status(self) -> str:
        """ "new", "feeding", then "done" (all pieces are in), "stopped" or "failed"."""
        if self.error is not None:
            return "failed"
        if self._thread.ident is None:
            return "new"
        if self._thread.is_alive():
            return "feeding"
        return "done" if self._done else "stopped"

    def start(self) -> Feeder:
        """Begin to feed. Returns this feeder. Raises `FeederUsed` the second time."""
        if self._thread.ident is not None:
            raise FeederUsed.again(self.stream.name)
        self._thread.start()
        return self

    def wait(self, timeout: float | None = None) -> Feeder:
        """Block until all pieces are in, or the feeder was stopped. Returns this feeder.

        Raises what the thread raised, and `FeedTimeout` after `timeout` seconds; the feeder goes on then.
        """
        if self._thread.ident is not None:
            self._thread.join(timeout)
        if self._thread.is_alive():
            raise FeedTimeout.after(self.stream.name, timeout or 0.0, self._rows)
        self._raise()
        return self

    def stop(self, timeout: float = 30.0) -> Feeder:
        """Stop behind the piece that is being appended, and join the thread. Returns this feeder; a second call does nothing.

        Raises what the thread raised, and `FeedTimeout` if that piece is not in after `timeout` seconds.
        """
        self._join(timeout)
        self._raise()
        return self

    def __enter__(self) -> Feeder:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
            return
        # The error of the block is the one that was met first; the feeder's goes along with it.
        try:
            self.stop()
        except Exception as own:
            error.add_note(f"And the feeder of {self.stream.name!r}: {type(own).__name__}: {own}")

    def __repr__(self) -> str:
        return f"<feeder of {self.stream.name!r}: {self.status}, {self._rows:,} rows>"

    def _join(self, timeout: float) -> None:
        self._stopping.set()
        if self._thread.ident is None:
            return
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise FeedTimeout.of_append(self.stream.name, timeout, self._rows)

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error

    def _feed(self) -> None:
        """The thread. Sets state, prints nothing."""
        try:
            began = time.monotonic()
            for rows, partition in self._pieces:
                if self._stopping.wait(max(0.0, began + self._rows / self.rows_per_second - time.monotonic())):
                    return
                self.stream.append(rows, partition, self._time_column)
                self._rows += rows.num_rows
            if self._end:
                self.stream.end()
            self._done = True
        except BaseException as error:  # nobody else would hear of it: it is raised where the feeder is waited for
            error.add_note(f"In the feeder of {self.stream.name!r}, after {self._rows:,} rows.")
            self.error = error
