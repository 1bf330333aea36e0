"""A forked Python is the Python that was asked for, whoever dies meanwhile. Real processes, no Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.session.commands import worker_command
from workbench.session.forkserver import ForkServer

psutil = pytest.importorskip("psutil")

PROBE = """
import gc, json, os, resource, signal, sys, threading, warnings
import pandas
print(json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "cwd": os.getcwd(), "name": __name__,
    "file": __file__, "package": __package__, "spec": __spec__.name, "main": sys.modules["__main__"].__file__,
    "flags": str(sys.flags), "environ": dict(os.environ), "hash": hash("tidemark"), "read": sys.stdin.read(),
    "handlers": [str(signal.getsignal(n)) for n in signal.valid_signals()],
    "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    "open": sorted(os.listdir("/proc/self/fd")), "umask": os.umask(0), "threads": threading.active_count(),
    "tasks": len(os.listdir("/proc/self/task")), "gc": gc.isenabled(), "warnings": str(warnings.filters),
    "unbuffered": sys.stdout.write_through, "encoding": sys.stdout.encoding, "executable": sys.executable,
    "preloaded_probe": "probe" in sys.modules, "group": os.getpgid(0),
}))
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / f"it's $HOME; a `place` {'far ' * 30}away"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


@pytest.fixture
def server(here: Path) -> Iterator[ForkServer]:
    private = here / "private"
    private.mkdir(mode=0o700)
    server = ForkServer.start(private, worker_command(private))
    assert server is not None
    yield server
    server.stop()


@pytest.fixture
def start(here: Path) -> Iterator[Start]:
    """Start what Spark would: a module with this source, in `here`; without the server if `plain`."""
    started = []
    (here / "plain").mkdir()
    plainly = worker_command(here / "plain")

    def start(source: str, *arguments: str, plain: bool = False, name: str = "job", **variables: str) -> Any:
        (here / f"{name}.py").write_text(source)
        command = plainly if plain else str(here / "private" / "python")
        resource_limit = 'ulimit -n "$(ulimit -H -n)"; trap "" INT; exec "$@"'  # as Java has it
        process = subprocess.Popen(
            ["sh", "-c", resource_limit, "sh", command, "-m", name, *arguments],
            env={**os.environ, "PYTHONUNBUFFERED": "YES", **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str], read: str = "") -> Any:
    """What it printed as JSON."""
    out, errors = process.communicate(read, timeout=60)
    assert process.returncode == 0, errors
    return json.loads(out)


def eventually(condition: Callable[[], object], what: str, seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    return bool(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)


@pytest.mark.usefixtures("server")
def test_a_forked_python_cannot_tell_that_it_is_one(start: Start) -> None:
    variables = {"MY_OWN": "ä = 1\n2", "SPARK_BUFFER_SIZE": "7", "OMP_NUM_THREADS": "3", "PYTHON_UDF_BATCH_SIZE": "9"}
    arguments = ("one two", "$HOME", "", "-x")
    forked, plain = (
        said(start(PROBE, *arguments, plain=plain, name="probe", **variables), "what it reads")
        for plain in (False, True)
    )
    assert forked["environ"]["MY_OWN"] == variables["MY_OWN"]
    assert forked["argv"][1:] == list(arguments)
    # Arrow and OpenBLAS start threads of their own where nobody is going to fork.
    assert forked.pop("tasks") == 1 <= plain.pop("tasks")
    assert forked == plain


def test_processes_come_from_the_server_if_it_runs_the_python_that_is_asked_for(
    start: Start, server: ForkServer, here: Path
) -> None:
    source = "import json, os; print(json.dumps({'parent': os.getppid(), 'tz': os.environ.get('TZ')}))"
    assert said(start(source))["parent"] == server.pid
    for variables in ({"PYTHONPATH": str(here / "elsewhere")}, {"TZ": "Asia/Tokyo"}, {"OPENBLAS_NUM_THREADS": "4"}):
        assert said(start(source, **variables))["parent"] == os.getpid(), f"only a new Python can have {variables}"


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    "end",
    [
        "pass",
        "sys.exit()",
        "sys.exit(3)",
        "sys.exit(-1)",
        "sys.exit('a last word')",
        "os._exit(7)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGTERM)",
        "raise ValueError('trouble')",
        "import no_such_module",
        "print('late', end=''); sys.stdout = None",
    ],
)
def test_it_ends_as_python_ends(start: Start, end: str) -> None:
    source = f"""
import atexit, os, signal, sys, threading, time
atexit.register(print, "at exit")
def work():
    time.sleep(0.1)
    os.write(2, b"a thread ended\\n")
threading.Thread(target=work).start()
def main():
    {end}
main()
"""
    ends = []
    for plain in (False, True):
        process = start(source, plain=plain)
        out, errors = process.communicate(timeout=60)
        frames = [line for line in errors.splitlines() if "<frozen runpy>" not in line]
        ends.append((process.returncode, out, frames))
    assert ends[0] == ends[1]


@pytest.mark.usefixtures("server")
def test_forked_processes_do_not_share_random_numbers(start: Start) -> None:
    source = """
import json, random, uuid
import numpy as np
print(json.dumps({"of": [random.random(), np.random.rand(), np.random.default_rng().random(), str(uuid.uuid4())]}))
"""
    one, other = (said(start(source))["of"] for _ in range(2))
    assert all(mine != yours for mine, yours in zip(one, other, strict=True))


@pytest.mark.usefixtures("server")
def test_files_that_change_between_two_starts_are_read_again(start: Start, here: Path) -> None:
    source = "import json, beside_the_notebook; print(json.dumps({'is': beside_the_notebook.VALUE}))"
    for value in (1, 22):
        (here / "beside_the_notebook.py").write_text(f"VALUE = {value}\n")
        assert said(start(source)) == {"is": value}


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_who_ends_the_stand_in_ends_the_process(start: Start, here: Path, how: signal.Signals) -> None:
    process = start("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert pid != process.pid
    process.send_signal(how)
    assert process.wait(15) == -how
    eventually(lambda: not psutil.pid_exists(pid), "the process outlived its stand-in, or was not reaped")


def test_one_that_does_not_want_to_end_is_killed_and_the_server_leaves_nobody(start: Start, server: ForkServer) -> None:
    source = "import os, signal, time; signal.signal(15, 1); print(os.getpid(), flush=True); time.sleep(600)"
    process = start(source)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < 12
    assert not psutil.pid_exists(pid)
    assert not psutil.pid_exists(server.pid)


def test_when_the_server_is_killed_its_processes_go_on_and_new_ones_start_as_ever(
    start: Start, server: ForkServer
) -> None:
    running = start("import os, sys; print(os.getpid(), flush=True); print(sys.stdin.readline(), flush=True)")
    waiting = start("import os, time; print(os.getpid(), flush=True); time.sleep(600)", name="waiting")
    assert running.stdout is not None and running.stdin is not None and waiting.stdout is not None
    pids = [int(running.stdout.readline()), int(waiting.stdout.readline())]
    assert [psutil.Process(pid).ppid() for pid in pids] == [server.pid, server.pid]
    os.kill(server.pid, signal.SIGKILL)
    time.sleep(0.3)
    assert all(is_running(pid) for pid in pids)
    assert running.poll() is None and waiting.poll() is None, "Spark would think that they are gone"
    assert said(start("import os; print(f'[{os.getppid()}]')", name="new")) == [os.getpid()]

    running.stdin.write("still there\n")
    running.stdin.flush()
    assert running.stdout.readline() == "still there\n"
    assert running.wait(15) == 1
    waiting.terminate()
    eventually(lambda: not is_running(pids[1]), "the stand-in did not pass the signal on")
    assert waiting.wait(15) == 1


def test_a_server_whose_driver_was_killed_ends_what_it_forked_and_itself(here: Path) -> None:
    (here / "sleeper.py").write_text("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    script = """
import os, pathlib, subprocess, sys
from workbench.session.commands import worker_command
from workbench.session.forkserver import ForkServer
private = pathlib.Path.cwd() / "of the driver"
private.mkdir(mode=0o700)
command = worker_command(private)
server = ForkServer.start(private, command)
job = subprocess.Popen([command, "-m", "sleeper"], stdout=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"})
pid = int(job.stdout.readline())
assert os.getpgid(pid) == os.getpgid(0)
print(server.pid, job.pid, pid, flush=True)
job.wait()
"""
    driver = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        text=True,
    )
    assert driver.stdout is not None
    pids = [int(word) for word in driver.stdout.readline().split()]
    driver.kill()
    driver.communicate()
    eventually(lambda: not any(is_running(pid) for pid in pids), "something is left of a killed driver")


def test_a_fork_of_the_driver_does_not_keep_the_server(server: ForkServer) -> None:
    child = os.fork()
    if child == 0:
        server.release()
        time.sleep(600)
    try:
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 5
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_where_a_socket_has_no_place_there_is_no_server(tmp_path: Path) -> None:
    assert ForkServer.start(tmp_path / "nowhere", sys.executable) is None
