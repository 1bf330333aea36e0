"""The parts of a session that need no Spark: finding Java, the commands, the settings, the directory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from workbench.errors import InvalidSetting, JavaNotFound, SessionConflict
from workbench.session import java as java_module
from workbench.session import workers
from workbench.session.commands import java_command, worker_command
from workbench.session.directory import PrivateDirectory
from workbench.session.java import find_java, inspect_java
from workbench.session.settings import java_options, spark_settings
from workbench.session.workers import check_workers


def installed(home: Path, version: str | None, modules: str = "", answer: str = "") -> Path:
    """A Java in `home` that has a `release` file, or only answers when asked."""
    (home / "bin").mkdir(parents=True)
    command = home / "bin" / "java"
    command.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{answer}\nEND\n")
    command.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="A"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_module, "_USUAL_PLACES", ())
    monkeypatch.setattr(sys, "prefix", "/nowhere")


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("1.8.0_392", 8), ("21", 21), ("25-ea", 25), ("11.0.2", 11)]
)
def test_the_major_version_is_read_in_both_spellings(tmp_path: Path, version: str, major: int) -> None:
    java = inspect_java(installed(tmp_path / "jdk", version))
    assert java is not None
    assert java.major == major
    assert (java.flaw is None) == (major >= 17)


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    one, other = installed(tmp_path / "one", "17.0.1"), installed(tmp_path / "other", "21.0.1")
    assert find_java({"JAVA_HOME": str(one), "PATH": str(other / "bin")}).home == one
    assert find_java({"PATH": str(other / "bin")}).home == other


def test_an_old_java_home_is_passed_over_for_one_that_fits(tmp_path: Path) -> None:
    old, new = installed(tmp_path / "old", "11.0.2"), installed(tmp_path / "new", "17.0.1")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).home == new


def test_a_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = tmp_path / "real"
    answer = f"Property settings:\n    java.home = {home}\n    java.specification.version = 21\n"
    installed(home, None, answer=answer)
    found = find_java({"PATH": str(home / "bin")})
    assert (found.home, found.major) == (home, 21)


@pytest.mark.usefixtures("nowhere")
def test_without_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFound, match=r"None was found\. Install openjdk-17-jre-headless"):
        find_java({"PATH": str(tmp_path)})


@pytest.mark.usefixtures("nowhere")
def test_only_an_old_java_is_named_in_the_error(tmp_path: Path) -> None:
    old = installed(tmp_path / "old", "1.8.0_392")
    with pytest.raises(JavaNotFound, match=r"Java 17 or newer\. Found, but unfit: \S+old \(version 1\.8\.0_392\)"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})


def test_the_worker_command_drops_sparks_archives_and_nothing_else(tmp_path: Path) -> None:
    directory = tmp_path / "a 'quoted' $(touch injected) `name`"
    directory.mkdir()
    python = directory / "py thon"
    python.symlink_to(sys.executable)
    command = worker_command(directory, str(python))
    kept = ["/a b", "/own pyspark.zip.d", "/star/*", "/x/lib.zip"]
    path = ["/s/lib/pyspark.zip", kept[0], "/s/lib/py4j-0.10.9-src.zip", *kept[1:], "/s/jars/spark-core.jar", ""]
    script = "import os, sys; print(os.environ.get('PYTHONPATH'), sys.argv[1:])"
    done = subprocess.run(
        [command, "-c", script, "one two", "$HOME"],
        env={**os.environ, "PYTHONPATH": ":".join(path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == f"{':'.join([*kept, str(Path(__file__).parents[2])])} ['one two', '$HOME']"
    assert not (tmp_path / "injected").exists()


def test_the_java_command_drops_one_argument_and_keeps_the_others_as_they_are(tmp_path: Path) -> None:
    home = installed(tmp_path / "a 'java' home", "17.0.1")
    (home / "bin" / "java").write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    command = java_command(tmp_path, home) / "bin" / "java"
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "$HOME", "--add-modules=java.sql", ""]
    done = subprocess.run([command, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "<-Da=b c><$HOME><--add-modules=java.sql><>"


def test_users_settings_win_and_truth_is_spelled_as_spark_does(tmp_path: Path) -> None:
    settings = spark_settings("a", 3, "2g", False, {"spark.sql.shuffle.partitions": 7, "spark.x": True}, tmp_path)
    assert settings["spark.master"] == "local[3]"
    assert settings["spark.sql.shuffle.partitions"] == "7"
    assert settings["spark.x"] == "true"


@pytest.mark.parametrize("cores", [0, -1, 1.5, "2", True])
def test_cores_that_can_not_be_are_refused(tmp_path: Path, cores: object) -> None:
    with pytest.raises(InvalidSetting, match="whole number of at least 1"):
        spark_settings("a", cores, "2g", False, {}, tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize("memory", ["2", "two", "", "-1g", 2, "2 g"])
def test_memory_that_can_not_be_is_refused(tmp_path: Path, memory: object) -> None:
    with pytest.raises(InvalidSetting, match="such as '2g'"):
        spark_settings("a", 1, memory, False, {}, tmp_path)  # type: ignore[arg-type]


def test_a_setting_that_is_not_sparks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"'shuffle\.partitions' does not"):
        spark_settings("a", 1, "2g", False, {"shuffle.partitions": 1}, tmp_path)


def test_options_of_java_survive_the_quoting_of_sparks_launcher(tmp_path: Path) -> None:
    line = java_options(tmp_path / 'with "quotes" and \\', None, "-Dmine=1")
    assert r"with \"quotes\" and \\" in line
    assert line.endswith(" -Dmine=1")


def killed_with_a_directory(temporary: Path) -> Path:
    """The directory of a process that was killed a moment ago."""
    script = (
        "import os, signal; from workbench.session.directory import PrivateDirectory;"
        "print(PrivateDirectory.create('tidemark-test-').path, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    return Path(done.stdout.strip())


def test_a_directory_left_by_a_killed_process_is_removed_by_the_next_at_once_and_one_in_use_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = killed_with_a_directory(tmp_path)
    assert left.stat().st_mode & 0o077 == 0
    living = PrivateDirectory.create("tidemark-test-")
    assert list(tmp_path.iterdir()) == [living.path]
    os.utime(living.path, (time.time() - 3600,) * 2)
    PrivateDirectory.create("tidemark-test-").remove()
    assert list(tmp_path.iterdir()) == [living.path]
    living.remove()
    living.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_without_its_lock_yet_is_left_alone_until_nobody_can_be_about_to_take_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    begun, removed, someones = (tmp_path / name for name in (".tidemark-test-a", "tidemark-test-b", "tidemark-test-c"))
    begun.mkdir()
    (begun / "lock").touch()
    removed.mkdir()
    someones.write_text("a file")
    PrivateDirectory.create("tidemark-test-").remove()
    assert sorted(tmp_path.iterdir()) == [begun, removed, someones]
    for path in (begun, removed, someones):
        os.utime(path, (time.time() - 3600,) * 2)
    PrivateDirectory.create("tidemark-test-").remove()
    assert list(tmp_path.iterdir()) == [someones]


class ForeignSession(SparkSession):
    """A session of a user's own, as far as its workers are concerned."""

    def __init__(self, python: str, master: str = "local[1]") -> None:
        self.context = SimpleNamespace(pythonExec=python, master=master)

    @property
    def sparkContext(self) -> Any:
        return self.context


def python_of(directory: Path, version: str = "3.11", missing: str = "[]") -> str:
    """A program that answers as an interpreter of that version would."""
    directory.mkdir()
    path = directory / "python3"
    path.write_text(f"#!/bin/sh\necho '[\"{version}\", {missing}]'\n")
    path.chmod(0o755)
    return str(path)


OURS = f"{sys.version_info.major}.{sys.version_info.minor}"


def test_workers_of_this_interpreter_or_of_one_like_it_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers.subprocess, "run", pytest.fail)
    check_workers(ForeignSession(sys.executable))
    (tmp_path / "session").mkdir()
    check_workers(ForeignSession(worker_command(tmp_path / "session")))
    monkeypatch.undo()
    other = tmp_path / "python-of-the-same-environment"
    other.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    other.chmod(0o755)
    check_workers(ForeignSession(str(other)))
    check_workers(ForeignSession(python_of(tmp_path / "a", OURS)))
    monkeypatch.setenv("PATH", str(tmp_path / "a"))
    check_workers(ForeignSession("python3"))


@pytest.mark.parametrize(
    ("version", "missing", "flaw"),
    [
        ("2.7", "[]", f"which is Python 2.7, and this is {OURS}"),
        (OURS, '["pandas", "pyarrow"]', "which has no pandas and no pyarrow"),
        ("", "oops", "which does not run (JSONDecodeError)"),
    ],
)
def test_workers_that_could_not_run_a_job_are_refused_with_the_reason_and_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, missing: str, flaw: str
) -> None:
    python = python_of(tmp_path / "bin", version, missing)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(SessionConflict) as refused:
        check_workers(ForeignSession("python3"))
    said = str(refused.value)
    assert said.startswith(f"This Spark session starts python3 ({python}) for its workers, {flaw}. Stop it with")
    assert f"os.environ['PYSPARK_PYTHON'] = sys.executable (here {sys.executable}) before" in said


def test_workers_without_any_python_and_sessions_of_another_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SessionConflict, match="starts /nowhere/python for its workers, which is not there"):
        check_workers(ForeignSession("/nowhere/python"))
    with pytest.raises(SessionConflict, match=r"not on builtins\.object \(Spark Connect"):
        check_workers(object())  # type: ignore[arg-type]


def test_this_package_may_be_sent_to_the_workers_of_a_cluster_but_not_what_is_compiled(tmp_path: Path) -> None:
    """Of an interpreter that has Arrow and the like but not this package."""
    python = tmp_path / "python3"
    code = (
        'import os, sys; sys.path = [p for p in sys.path if p and not os.path.isdir(os.path.join(p, "workbench"))];'
        "exec(sys.argv.pop(1))"
    )
    python.write_text(f"#!/bin/sh\nshift\nexec '{sys.executable}' -P -c '{code}' \"$@\"\n")
    python.chmod(0o755)
    check_workers(ForeignSession(str(python), "spark://cluster:7077"))
    with pytest.raises(SessionConflict, match="which has no workbench"):
        check_workers(ForeignSession(str(python)))
