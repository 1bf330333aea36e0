"""Control messages, their envelope, and runs of them in columns."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import InvalidMessage, InvalidName, UndecodableMessage
from workbench.messages import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    ControlMessage,
    ControlRun,
    DrainMessage,
    EndOfStreamMessage,
    MessageType,
    WatermarkMessage,
    control_from_json,
    decode_envelope,
    encode_envelope,
)
from workbench.names import SSP

HERE = SSP("kafka", "by.carrier", 3)


class JsonSerde:
    """A user's serde that refuses what it does not know, markers included."""

    def serialize(self, value: Any) -> bytes:
        return json.dumps(value).encode()

    def deserialize(self, data: bytes) -> Any:
        return json.loads(data)


def decode(data: bytes | None) -> Any:
    return decode_envelope(data, JsonSerde(), ssp=HERE, offset=41)


def control(kind: int, text: str) -> Any:
    return decode(bytes((kind,)) + text.encode())


def refusal(kind: int, text: str | bytes) -> str:
    with pytest.raises(UndecodableMessage) as caught:
        decode(bytes((kind,)) + (text.encode() if isinstance(text, str) else text))
    assert "offset 41 of kafka/by.carrier[3]" in str(caught.value)
    return str(caught.value)


names = st.one_of(
    st.integers(0, 3000).map("Partition {}".format), st.sampled_from(["task-1", "Aufgabe ü", "Partition 007", "5"])
)
senders = st.one_of(st.just((None, 0)), st.tuples(names, st.one_of(st.none(), st.integers(1, 5000))))
messages = st.one_of(
    st.builds(lambda t, of: WatermarkMessage(t, *of), st.integers(MIN_TIMESTAMP, MAX_TIMESTAMP), senders),
    st.builds(lambda s, of: EndOfStreamMessage(s, *of), st.sampled_from(["a.b", "s"]), senders),
    st.builds(lambda r, of: DrainMessage(r, *of), st.sampled_from(["run-1", "run-2"]), senders),
)


# The envelope.


@given(messages)
def test_a_control_message_survives_its_envelope_and_its_json(message: ControlMessage) -> None:
    data = encode_envelope(message, JsonSerde())
    assert data[0] == message.type
    assert decode(data) == message
    assert control_from_json(json.loads(json.dumps(message.to_json()))) == message


def test_user_data_goes_through_the_users_serde_and_control_data_never() -> None:
    assert encode_envelope({"carrier": "UA"}, JsonSerde()) == b'\x00{"carrier": "UA"}'
    assert decode(b'\x00{"carrier": "UA"}') == {"carrier": "UA"}
    assert encode_envelope(WatermarkMessage(100, "task-1", 2), JsonSerde()) == (
        b'\x01{"version":1,"taskName":"task-1","taskCount":2,"timestamp":100}'
    )


def test_each_type_is_written_with_its_own_last_key() -> None:
    assert list(EndOfStreamMessage("s").fields()) == ["version", "taskName", "taskCount", "streamId"]
    assert list(DrainMessage("r").fields()) == ["version", "taskName", "taskCount", "runId"]
    assert [int(kind) for kind in MessageType] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (1, '{"timestamp":100,"taskName":"task-1","version":1}', WatermarkMessage(100, "task-1", None)),
        (1, '{"timestamp":100,"taskName":null,"version":1}', WatermarkMessage(100)),
        (2, '{"taskName":"task-1","version":1}', EndOfStreamMessage("by.carrier", "task-1", None)),
        (2, '{"taskName":null,"version":1}', EndOfStreamMessage("by.carrier")),
        (3, '{"taskName":"task-1","version":1,"runId":"run-1"}', DrainMessage("run-1", "task-1", None)),
        (3, '{"taskName":null,"version":1,"runId":"run-1"}', DrainMessage("run-1")),
    ],
)
def test_what_current_samza_writes_is_read_with_a_task_count_not_known(
    kind: int, text: str, expected: ControlMessage
) -> None:
    assert control(kind, text) == expected


def test_what_samza_0_13_wrote_is_read() -> None:
    text = '{"task-name":"task-1","task-count":4,"version":1,"timestamp":-5}'
    assert control(1, text) == WatermarkMessage(-5, "task-1", 4)


@pytest.mark.parametrize("flip", [False, True])
def test_camel_case_wins_over_dashes_whatever_the_order(flip: bool) -> None:
    spellings = {
        "runId": "camel",
        "run-id": "dashed",
        "taskName": "c",
        "task-name": "d",
        "taskCount": 2,
        "task-count": 3,
    }
    pairs = list(spellings.items())
    assert control(3, json.dumps(dict(reversed(pairs) if flip else pairs))) == DrainMessage("camel", "c", 2)


def test_a_watermark_without_a_timestamp_is_not_one_at_1970() -> None:
    assert "'timestamp'" in refusal(1, '{"taskName":"task-1","taskCount":2,"version":1}')


def test_an_end_of_stream_that_names_nobody_is_not_the_end_of_everybody() -> None:
    assert "'taskName'" in refusal(2, "{}")


def test_a_drain_without_a_run_id_is_refused_also_as_a_bare_string() -> None:
    assert "'runId'" in refusal(3, '{"taskName":"task-1","taskCount":2}')
    assert "JSON object" in refusal(3, '"run-1"')


def test_an_unknown_version_is_refused() -> None:
    assert "version '2'" in refusal(1, '{"version":2,"taskName":null,"timestamp":5}')


def test_unknown_keys_are_skipped() -> None:
    assert control(1, '{"timestamp":1,"taskName":null,"colour":"red"}') == WatermarkMessage(1)


@pytest.mark.parametrize(
    "text",
    [
        '{"timestamp":true,"taskName":null}',
        '{"timestamp":1.0,"taskName":null}',
        '{"timestamp":"1","taskName":null}',
        '{"timestamp":null,"taskName":null}',
        '{"timestamp":9223372036854775808,"taskName":null}',
        '{"timestamp":1e400,"taskName":null}',
        '{"timestamp":' + "9" * 5000 + ',"taskName":null}',
        '{"timestamp":' + "9" * 4000 + ',"taskName":null}',
        '{"timestamp":1,"timestamp":2,"taskName":null}',
        '{"timestamp":1,"taskName":7}',
        '{"timestamp":1,"taskName":""}',
        '{"timestamp":1,"taskName":"\\ud800"}',
        '{"timestamp":1,"taskName":"task-1","taskCount":0}',
        '{"timestamp":1,"taskName":"task-1","taskCount":-1}',
        '{"timestamp":1,"taskName":"task-1","taskCount":1.5}',
        '{"timestamp":1,"taskName":"task-1","version":true}',
        '{"timestamp":1',
        "[" * 100_000,
        "",
        b"\xff\xfe{\x00}\x00",
    ],
    ids=lambda text: str(text[:45]),
)
def test_a_malformed_watermark_is_an_error_that_says_where_it_is(text: str | bytes) -> None:
    assert refusal(1, text).startswith("The message at offset 41")


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_a_clear_error(data: bytes) -> None:
    try:
        decode(data)
    except UndecodableMessage as error:
        assert "offset 41 of kafka/by.carrier[3]" in str(error)


@pytest.mark.parametrize("data", [b"", None])
def test_no_bytes_at_all_are_no_envelope(data: bytes | None) -> None:
    with pytest.raises(UndecodableMessage, match="no bytes"):
        decode(data)


def test_data_written_without_an_envelope_is_not_guessed_at() -> None:
    with pytest.raises(UndecodableMessage, match="first byte is 123"):
        decode(b'{"carrier": "UA"}')


def test_a_failing_user_serde_is_the_cause_of_an_error_that_says_where() -> None:
    with pytest.raises(UndecodableMessage, match="JSONDecodeError") as caught:
        decode(b"\x00not json")
    assert isinstance(caught.value.__cause__, json.JSONDecodeError)


def test_a_serde_must_return_bytes() -> None:
    class Forgetful(JsonSerde):
        def serialize(self, value: Any) -> Any:
            return None

    with pytest.raises(InvalidMessage, match="NoneType"):
        encode_envelope({"a": 1}, Forgetful())


# The messages.


@pytest.mark.parametrize(
    "make",
    [
        lambda: WatermarkMessage(MAX_TIMESTAMP + 1),
        lambda: WatermarkMessage(10**400),
        lambda: WatermarkMessage(1.5),  # type: ignore[arg-type]
        lambda: WatermarkMessage(True),
        lambda: WatermarkMessage(1, "Partition 0"),
        lambda: WatermarkMessage(1, None, None),
        lambda: WatermarkMessage(1, None, -1),
        lambda: EndOfStreamMessage("s", "Partition 0", 1, version=2),
        lambda: control_from_json({"type": 0, "taskName": None}),
    ],
)
def test_a_message_that_says_nothing_sure_can_not_be_made(make: Any) -> None:
    with pytest.raises(InvalidMessage):
        make()


def test_names_in_messages_follow_the_rules_of_names() -> None:
    with pytest.raises(InvalidName):
        DrainMessage("")
    with pytest.raises(InvalidName):
        EndOfStreamMessage(" s")


def test_a_watermark_may_be_before_1970() -> None:
    assert decode(encode_envelope(WatermarkMessage(-1), JsonSerde())) == WatermarkMessage(-1)


# Runs in columns.


@given(st.lists(messages, max_size=12), st.integers(0, 12), st.integers(0, 12))
def test_a_run_gives_back_its_messages_whole_sliced_and_from_json(
    listed: list[ControlMessage], first: int, last: int
) -> None:
    run = ControlRun.from_messages(listed)
    assert run.messages() == listed
    assert len(run) == len(listed)
    assert ControlRun.from_json(json.loads(json.dumps(run.to_json()))) == run
    assert run[first:last].messages() == listed[first:last]
    assert [run[index] for index in range(len(run))] == listed
    assert run.without(MessageType.DRAIN).messages() == [each for each in listed if each.type != MessageType.DRAIN]


def test_a_run_stores_what_repeats_once() -> None:
    run = ControlRun.from_messages([WatermarkMessage(1000 + task, f"Partition {task}", 64) for task in range(64)])
    stored = run.to_json()
    assert (stored["type"], stored["of"], stored["task"][:3]) == (1, 64, [0, 1, 2])
    assert len(json.dumps(stored, separators=(",", ":"))) < 64 * 9 + 60


@pytest.mark.parametrize(
    "damage",
    [
        {"time": [1]},
        {"time": [1, "2"]},
        {"time": [1, 2**63]},
        {"task": [0, -1]},
        {"task": [0, True]},
        {"type": 9},
        {"type": 2},
        {"n": -1},
        {"n": "2"},
        {"v": 2},
    ],
)
def test_damaged_columns_are_an_error(damage: dict[str, Any]) -> None:
    whole = ControlRun.from_messages([WatermarkMessage(1, "Partition 0", 2), WatermarkMessage(2, "Partition 1", 2)])
    with pytest.raises(InvalidMessage):
        ControlRun.from_json({**whole.to_json(), **damage})


def test_a_run_has_no_message_beyond_its_end() -> None:
    with pytest.raises(IndexError, match="no index 1"):
        ControlRun.from_messages([WatermarkMessage(1)])[1]


def test_the_pure_modules_need_nothing_but_the_standard_library() -> None:
    code = """
import sys, importlib.machinery, types
package = types.ModuleType("workbench"); package.__path__ = ["workbench"]; sys.modules["workbench"] = package
import workbench.messages, workbench.reconciliation
ours = {name.split(".")[0] for name in sys.modules if not name.startswith("_")}
print(sorted(ours - sys.stdlib_module_names - {"workbench"} - BEFORE))
print(sorted(name for name in sys.modules if name.count(".") == 1 and name.startswith("workbench.")))
"""
    code = "import sys; BEFORE = {name.split('.')[0] for name in sys.modules}\n" + code
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split(
        "\n"
    )
    assert printed[0] == "[]"
    assert printed[1] == str(["workbench.errors", "workbench.messages", "workbench.names", "workbench.reconciliation"])
