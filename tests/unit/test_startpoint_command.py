"""`workbench startpoint …`, as it is typed."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from workbench.commands._startpoint_target import KnownJob
from workbench.commands.startpoint import add_to
from workbench.errors import (
    InvalidDuration,
    InvalidStartpoint,
    InvalidStartpointRequest,
    LogUnavailable,
    TidemarkError,
    UnknownApplication,
    UnknownStream,
    UnresolvableStartpoint,
)
from workbench.names import SSP
from workbench.startpoints import (
    STALE_AFTER,
    WRITTEN_NAMESPACE,
    Request,
    StartpointManager,
    StartpointOldest,
    StartpointSpecific,
    StartpointTimestamp,
    StartpointUpcoming,
)
from workbench.systems.log import StreamLog

NOW = 1_700_000_000_000
S0, S1, B = SSP("log", "s", 0), SSP("log", "s", 1), SSP("log", "app.b", 0)


def at(offset: int) -> StartpointSpecific:
    return StartpointSpecific(offset, created=NOW)


@dataclass
class Shell:
    """A command line over a log: `s` (a source, 2 partitions of 6 rows), `app.b` (broadcast), and `app` known to run."""

    log: StreamLog
    known: dict[str, KnownJob]
    capture: pytest.CaptureFixture[str]
    now: int = NOW

    def __call__(self, *words: str) -> str:
        parser = argparse.ArgumentParser()
        add_to(parser.add_subparsers(), self.provider, lambda: self.now)
        verb, *rest = words
        chosen = parser.parse_args(["startpoint", verb, str(self.log.directory), *rest])
        self.code = chosen.run(chosen)
        return self.capture.readouterr().out

    def provider(self, log: StreamLog, application: str) -> KnownJob:
        if application not in self.known:
            raise UnknownApplication.from_log(application, str(log.directory))
        return self.known[application]

    @property
    def manager(self) -> StartpointManager:
        return StartpointManager(self.log, "app", lambda: self.now)

    @property
    def written(self) -> dict[tuple[SSP, str | None], object]:
        return {(request.ssp, request.task): request.startpoint for request in self.manager.all().requests}


@pytest.fixture
def shell(log_dir: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    log = StreamLog(log_dir)
    s, b = log.create("s", 2), log.create("app.b", 1)
    hour = 3_600_000
    for partition in range(2):
        times = pa.array([hour * (i + partition) for i in range(6)], pa.timestamp("ms"))
        s.append(pa.table({"time": times}), partition, "time")
    b.append(pa.table({"x": [1, 2, 3]}))
    return Shell(log, {"app": KnownJob({"s": [4, 2], "app.b": [1, 3]}, ["s"], ["app.b"])}, capsys)


def test_a_partition_is_set_and_the_preview_is_shown(shell: Shell) -> None:
    out = shell("set", "app", "s:1", "--oldest")
    assert shell.written == {(S1, None): StartpointOldest(created=NOW)}
    assert "Partition 1" in out and "Partition 0" not in out
    assert "Replayed: 2 messages. Skipped: 0." in out
    assert "1 startpoint(s) set; the next start of 'app' takes them." in out


def test_a_dry_run_shows_the_same_and_writes_nothing(shell: Shell) -> None:
    dry = shell("set", "app", "s", "--upcoming", "--dry-run")
    assert shell.written == {} and "Dry run: nothing was written." in dry
    wet = shell("set", "app", "s", "--upcoming")
    assert dry.splitlines()[:-1] == wet.splitlines()[:-1]
    assert "Skipped: 6" in wet


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--oldest"], StartpointOldest(created=NOW)),
        (["--upcoming"], StartpointUpcoming(created=NOW)),
        (["--offset", "3"], StartpointSpecific(3, created=NOW)),
        (["--at", "1970-01-01T02:00"], StartpointTimestamp(7_200_000, created=NOW)),
        (["--at", "1970-01-01T02:00:00.5+01:00"], StartpointTimestamp(3_600_500, created=NOW)),
        (["--at", "1970-01-01", "--by", "append"], StartpointTimestamp(0, "append", created=NOW)),
        (["--ago", "90min"], StartpointTimestamp(6 * 3_600_000 - 5_400_000, created=NOW)),
        (["--ago", "2h", "--by", "append"], StartpointTimestamp(NOW - 7_200_000, "append", created=NOW)),
        (["--shift", "-1"], StartpointSpecific(3, created=NOW)),
        (["--shift", "+100"], StartpointSpecific(6, created=NOW)),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_each_way_to_say_where(shell: Shell, words: list[str], expected: object) -> None:
    shell("set", "app", "s:0", *words)
    assert shell.written == {(S0, None): expected}


def test_whole_streams_single_partitions_and_all_sources(shell: Shell) -> None:
    shell("set", "app", "s", "--oldest")
    assert set(shell.written) == {(S0, None), (S1, None)}
    shell("delete", "app", "--all")
    shell("set", "app", "s", "--partition", "1", "--partition", "0", "--oldest")
    assert set(shell.written) == {(S0, None), (S1, None)}
    shell("delete", "app", "s:0")
    assert set(shell.written) == {(S1, None)}
    shell("set", "app", "--all", "--upcoming")
    assert set(shell.written) == {(S0, None), (S1, None)}, "the sources; what is in flight stays where it is"


def test_a_broadcast_stream_can_be_set_for_one_task_and_is_shifted_in_each(shell: Shell) -> None:
    out = shell("set", "app", "app.b", "--oldest", "--task", "Partition 1")
    assert "less far" not in out
    assert shell.written == {(B, "Partition 1"): StartpointOldest(created=NOW)} and "Replayed: 3" in out
    shell.now += 1
    assert "less far" not in shell("set", "app", "app.b", "--shift", "-1")
    assert shell.written == {
        (B, "Partition 0"): StartpointSpecific(0, created=NOW + 1),
        (B, "Partition 1"): StartpointSpecific(2, created=NOW + 1),
    }


def test_a_shift_that_ends_with_its_partition_says_so(shell: Shell) -> None:
    assert "1 of them go less far than -3: only as far as" in shell("set", "app", "s", "--shift", "-3")
    assert shell.written == {(S0, None): at(1), (S1, None): at(0)}


def test_what_can_not_be_resolved_is_refused_before_it_is_written(shell: Shell) -> None:
    with pytest.raises(UnresolvableStartpoint, match=r"2 startpoints.*\n.*log/s\[0\].*0 to 6"):
        shell("set", "app", "s", "--offset", "7")
    with pytest.raises(UnresolvableStartpoint, match="no event time"):
        shell("set", "app", "app.b", "--at", "2013-07-01")
    assert shell.written == {}


@pytest.mark.parametrize(
    ("words", "error", "sentence"),
    [
        (["s"], InvalidStartpointRequest, "Exactly one of --oldest, .* and none was"),
        (["--oldest"], InvalidStartpointRequest, r"Exactly one of STREAM\[:PARTITION\], --all"),
        (["s", "--all", "--oldest"], InvalidStartpointRequest, "not STREAM and --all"),
        (["s:0", "--partition", "1", "--oldest"], InvalidStartpointRequest, "one too many"),
        (["s:7", "--oldest"], InvalidStartpointRequest, r"does not consume log/s\[7\]. It consumes: .*'log/s\[0\]'"),
        (["s:0", "--oldest", "--task", "Partition 1"], InvalidStartpointRequest, "in a task 'Partition 1'"),
        (["s:0", "--oldest", "--by", "append"], InvalidStartpointRequest, "needs --at or --ago"),
        (["t", "--oldest"], UnknownStream, "no stream 't'"),
        (["s", "--at", "noon"], InvalidStartpointRequest, "'noon' is not a time"),
        (["s", "--ago", "two hours"], InvalidDuration, "two hours"),
        (["app.b", "--ago", "2h"], InvalidStartpointRequest, "No row of 'app.b' has an event time"),
        (["s", "--offset", "-1"], InvalidStartpoint, "offset of a startpoint"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_what_is_unclear_is_a_sentence(
    shell: Shell, words: list[str], error: type[TidemarkError], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        shell("set", "app", *words)
    assert shell.written == {}


def test_names_that_end_like_a_partition_are_told_apart(shell: Shell) -> None:
    shell.log.create("s:1", 1).append(pa.table({"x": [1]}))
    shell.log.create("t:5", 1).append(pa.table({"x": [1]}))
    shell.known["app"] = KnownJob({"s": [4, 2], "s:1": [0], "t:5": [0]}, ["s", "s:1", "t:5"])
    with pytest.raises(InvalidStartpointRequest, match="'s:1' is a stream, and 's' has a partition 1 as well"):
        shell("set", "app", "s:1", "--oldest")
    shell("set", "app", "s:1", "--partition", "0", "--oldest")
    shell("set", "app", "t:5", "--oldest")
    shell("set", "app", "t:5:0", "--oldest")
    assert set(shell.written) == {(SSP("log", "s:1", 0), None), (SSP("log", "t:5", 0), None)}


def test_an_application_that_never_ran_may_be_told_where_to_begin(shell: Shell) -> None:
    out = shell("set", "new", "s", "--offset", "3")
    assert "No run of 'new' is known on this log yet" in out and "2 startpoint(s) set" in out
    assert len(StartpointManager(shell.log, "new", lambda: NOW).all().fresh) == 2
    for words in (["s", "--oldest", "--dry-run"], ["--all", "--oldest"], ["s", "--shift", "1"]):
        with pytest.raises(UnknownApplication):
            shell("set", "new", *words)
    with pytest.raises(UnresolvableStartpoint, match="no partition 9"):
        shell("set", "new", "s:9", "--oldest")


def test_a_log_that_is_not_there_is_a_sentence(shell: Shell, tmp_path: Path) -> None:
    shell.log = StreamLog(tmp_path / "log")
    (shell.log.directory / StreamLog.MARKER).unlink()
    with pytest.raises(LogUnavailable, match="no log"):
        shell("list", "app")


def test_the_list_tells_the_state_of_each(shell: Shell) -> None:
    assert shell("list", "app") == "There are no startpoints for 'app'.\n"
    shell("set", "app", "s:0", "--offset", "1")
    shell.manager.fan_out({"Partition 0": [S0]})
    shell("set", "app", "s:1", "--offset", "2")
    shell.now += STALE_AFTER
    shell("set", "app", "app.b", "--offset", "3", "--task", "Partition 1")
    shell.log.metadata.put(WRITTEN_NAMESPACE, '["app","log","s",5]', "{")
    lines = shell("list", "app").splitlines()
    state = {line.split()[0]: line for line in lines[1:4]}
    assert state["log/s[0]"].endswith("taken by a start, not yet consumed") and "Partition 0" in state["log/s[0]"]
    assert state["log/s[1]"].endswith("stale") and " all " in state["log/s[1]"]
    assert state["log/app.b[0]"].endswith("waits for a start") and "2023-11-15T10:13:20Z" in state["log/app.b[0]"]
    assert "will not be applied: it was made at" in lines[4]
    assert lines[5].startswith('Unreadable: ["app","log","s",5]: This is not the JSON of a startpoint')


def test_the_preview_fails_where_the_next_start_would(shell: Shell) -> None:
    assert "goes on by its checkpoint" in shell("preview", "app") and shell.code == 0
    shell("set", "app", "s", "--offset", "3")
    assert "Replayed: 1 messages. Skipped: 1." in shell("preview", "app") and shell.code == 0
    shell.log.stream("s").trim(0, 5)
    out = shell("preview", "app")
    assert shell.code == 1
    assert "Unresolvable: The startpoint offset 3 of log/s[0] can not be resolved: its offsets are 5 to 6" in out


def test_a_newer_one_for_the_task_is_seen_to_win(shell: Shell) -> None:
    shell("set", "app", "app.b", "--oldest")
    shell.now += 1
    out = shell("set", "app", "app.b", "--upcoming", "--task", "Partition 1")
    assert [line.split()[-1] for line in out.splitlines()[1:4]] == ["applies", "applies", "overridden"]


def test_delete_takes_back_what_waits_and_what_a_start_has_taken(shell: Shell) -> None:
    shell("set", "app", "s", "--oldest")
    shell.manager.fan_out({"Partition 0": [S0]})
    shell("set", "app", "app.b", "--oldest", "--task", "Partition 1")
    out = shell("delete", "app", "s")
    assert out.count("Deleted:") == 2 and out.count("A start had taken it already") == 1
    assert set(shell.written) == {(B, "Partition 1")} and shell.manager.fan_outs()[0] == ()
    assert shell("delete", "app", "app.b", "--task", "Partition 0") == "There was no such startpoint.\n"
    assert "Deleted: oldest for log/app.b[0] in Partition 1." in shell(
        "delete", "app", "app.b", "--task", "Partition 1"
    )
    assert shell.written == {}


def test_delete_finds_startpoints_of_a_stream_that_is_gone_and_entries_that_are_none(shell: Shell) -> None:
    gone = SSP("log", "gone", 0)
    shell.manager.write_all([Request(gone, StartpointOldest(created=NOW))])
    assert "Deleted: oldest for log/gone[0]." in shell("delete", "app", "gone")
    shell.log.metadata.put(WRITTEN_NAMESPACE, '["app","log","s",5]', json.dumps({"@type": "StartpointOldest"}))
    assert shell("delete", "app", "--all") == "There was no such startpoint.\n"
    assert shell("delete", "app", "--unreadable") == "1 unreadable entries deleted.\n"
    assert shell("list", "app") == "There are no startpoints for 'app'.\n"
    with pytest.raises(InvalidStartpointRequest):
        shell("delete", "app", "--unreadable", "--all")


def test_the_preview_shows_what_a_start_has_taken_and_what_takes_its_place(shell: Shell) -> None:
    shell("set", "app", "s", "--oldest")
    shell.manager.fan_out({"Partition 0": [S0]})
    shell.now += 1
    shell("set", "app", "s:0", "--upcoming")
    lines = shell("preview", "app").splitlines()
    assert "taken" in lines[0]
    assert [(line.split()[5 - 1], line.split()[-2], line.split()[-1]) for line in lines[1:4]] == [
        ("upcoming", "False", "applies"),
        ("oldest", "True", "overridden"),
        ("oldest", "False", "applies"),
    ]
