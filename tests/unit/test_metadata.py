from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from workbench.errors import InvalidMetadata
from workbench.metadata import LARGEST_VALUE, MetadataStore
from workbench.systems.log import StreamLog


@pytest.fixture
def log(log_dir: Path) -> StreamLog:
    return StreamLog(log_dir)


@pytest.fixture
def store(log: StreamLog) -> MetadataStore:
    return log.metadata


def test_a_value_is_there_until_it_is_deleted(store: MetadataStore) -> None:
    assert store.get("n", "k") is None
    store.put("n", "k", b"\x00\xff")
    assert store.get("n", "k") == b"\x00\xff"
    store.put("n", "k", "grün")
    assert store.get("n", "k") == "grün".encode()
    assert store.delete("n", "k") is True
    assert store.delete("n", "k") is False
    assert store.get("n", "k") is None


def test_namespaces_do_not_see_each_other(store: MetadataStore) -> None:
    store.put("a", "k", "1")
    store.put("a.b", "k", "2")
    store.put_all("b", {"y": "3", "x": b"4"})
    assert store.all("a") == {"k": b"1"}
    assert list(store.all("b").items()) == [("x", b"4"), ("y", b"3")]
    assert store.namespaces() == ["a", "a.b", "b"]
    assert store.delete_all("b") == 2
    assert store.all("b") == {} and store.namespaces() == ["a", "a.b"]


def test_an_empty_value_is_a_value(store: MetadataStore) -> None:
    store.put("n", "", "")
    assert store.get("n", "") == b"" and store.all("n") == {"": b""}


def test_a_transaction_that_fails_leaves_nothing(store: MetadataStore) -> None:
    store.put("n", "old", "1")
    with pytest.raises(RuntimeError, match="stop"), store.transaction() as transaction:
        transaction.put("n", "new", "2")
        transaction.delete("n", "old")
        assert transaction.all("n") == {"new": b"2"}
        raise RuntimeError("stop")
    assert store.all("n") == {"old": b"1"}


def test_others_see_all_of_a_transaction_or_nothing(log: StreamLog) -> None:
    seen: list[dict[str, bytes]] = []

    def look() -> None:
        seen.append(log.metadata.all("n"))

    def look_elsewhere() -> None:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()

    with log.metadata.transaction() as transaction:
        transaction.put("n", "a", "1")
        look_elsewhere()
        transaction.put("n", "b", "2")
    look_elsewhere()
    assert seen == [{}, {"a": b"1", "b": b"2"}]


def test_metadata_and_streams_can_change_in_one_transaction(log: StreamLog) -> None:
    with pytest.raises(RuntimeError), log.transaction():
        log.create("s", 1).end()
        log.metadata.put("n", "k", "v")
        raise RuntimeError
    assert log.streams() == [] and log.metadata.get("n", "k") is None
    with log.transaction():
        log.create("s", 1).end()
        log.metadata.put("n", "k", "v")
    assert log.stream("s").ended() == [True] and log.metadata.get("n", "k") == b"v"


def test_several_megabytes_fit_and_more_is_refused(store: MetadataStore) -> None:
    store.put("n", "k", b"x" * (5 << 20))
    with pytest.raises(InvalidMetadata, match="keeps values of up to"):
        store.put_all("n", {"fits": "x", "large": b"x" * (LARGEST_VALUE + 1)})
    assert list(store.all("n")) == ["k"]


def test_another_process_reads_and_writes_it(log: StreamLog) -> None:
    log.metadata.put("n", "ours", "1")
    script = (
        "import sys; from workbench.systems.log import StreamLog\n"
        "store = StreamLog(sys.argv[1], create=False).metadata\n"
        "assert store.get('n', 'ours') == b'1'\n"
        "store.put('n', 'theirs', '2')\n"
    )
    subprocess.run([sys.executable, "-c", script, str(log.directory)], check=True, cwd=Path(__file__).parents[2])
    assert log.metadata.get("n", "theirs") == b"2"


@pytest.mark.parametrize("text", ["'; DROP TABLE metadata; --", "🌊", "a\nb", "x" * 10_000])
def test_any_text_is_a_key_and_a_namespace(store: MetadataStore, text: str) -> None:
    store.put(text, text, text)
    assert store.all(text) == {text: text.encode()}
