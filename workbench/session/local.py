"""One local Spark session per process: started fast, shared, and gone without a trace when it is stopped."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pyspark import SparkConf, SparkContext
from pyspark.errors import SparkNoSuchElementException
from pyspark.sql import SparkSession

from workbench.errors import SessionConflict, SessionFailed
from workbench.session.archive import archive_for
from workbench.session.commands import java_command, worker_command
from workbench.session.directory import PrivateDirectory
from workbench.session.forkserver import ForkServer
from workbench.session.java import find_java
from workbench.session.settings import ROCKSDB, STATE_STORE, java_options, spark_settings, spelled
from workbench.session.warming import warm_up
from workbench.session.workers import check_workers

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_MEMORY = "2g"
_SPARKS_OWN = {"spark.driver.memory": "1g", "spark.ui.enabled": "true"}
"""Defaults that Spark does not tell."""


class _Running(NamedTuple):
    session: SparkSession
    asked: dict[str, object]
    directory: PrivateDirectory
    server: ForkServer | None
    warming: threading.Thread


_lock = threading.RLock()
_running: _Running | None = None


def local_session(
    app_name: str = "tidemark",
    *,
    cores: int | None = None,
    memory: str | None = None,
    ui: bool = False,
    config: Mapping[str, object] | None = None,
) -> SparkSession:
    """The local Spark session of this process, started if there is none.

    `cores` are the threads that run tasks (by default all that this process may use), `memory` is the heap of the JVM (by
    default "2g"), `ui` serves Spark's own pages on the loopback address, and `config` holds further settings of Spark,
    which win over ours.

    A second call returns the same session if it asks for the same; a session that was started without us is returned
    if it has what is asked for, the settings that a job needs, and workers that can run one. Files live in a private
    temporary directory that goes with the session.

    Raises `JavaNotFound` without Java 17 or newer, `SessionConflict` if a session with other settings is active,
    `InvalidSetting`, and `SessionFailed` if the JVM does not start.
    """
    global _running
    heap = _MEMORY if memory is None else memory
    asked: dict[str, object] = {"cores": cores, "memory": heap, "ui": ui, **(config or {})}
    with _lock:
        if _running is not None and not _is_alive(_running.session):
            stop_session()
        if _running is not None:
            if asked != _running.asked:
                raise SessionConflict.from_settings(asked, _running.asked)
            return _running.session
        foreign = SparkSession.getActiveSession() or _default_session()
        if foreign is not None:
            return _fit(foreign, cores, memory, ui, config or {})
        _running = _start(app_name, asked, cores, heap, ui, config or {})
        return _running.session


def stop_session(*, seconds: float = 15) -> None:
    """Stop the session that `local_session` started, its JVM and its workers, and remove its files. Idempotent.

    The JVM is given `seconds` to leave by itself.
    """
    global _running
    with _lock:
        if _running is None:
            return
        running, _running = _running, None
        # Py4J would tell the user of a call that breaks off.
        running.warming.join(seconds)
        try:
            if _is_alive(running.session):
                for query in running.session.streams.active:
                    query.stop()
                running.session.stop()
            else:
                _forget_dead(running.session)
        finally:
            _end_jvm(seconds)
            if running.server is not None:
                running.server.stop()
            running.directory.remove()


def _start(
    app_name: str, asked: dict[str, object], cores: int | None, memory: str, ui: bool, config: Mapping[str, object]
) -> _Running:
    java = find_java()
    directory = PrivateDirectory.create("tidemark-session-")
    server = None
    try:
        settings = spark_settings(app_name, cores, memory, ui, config, directory.path)
        settings[_JAVA_OPTIONS] = java_options(directory.path, archive_for(java), settings.get(_JAVA_OPTIONS, ""))
        if SparkContext._gateway is not None:
            # The JVM of a session that was stopped: it would not take our options.
            _end_jvm(seconds=15)
        python = worker_command(directory.path)
        with _environment(java_command(directory.path, java.home), python):
            if python != sys.executable:
                server = ForkServer.start(directory.path, python)
            try:
                session = SparkSession.builder.config(
                    conf=SparkConf(False).setAll(list(settings.items()))
                ).getOrCreate()
            except Exception as error:
                raise SessionFailed.from_cause(error) from error
    except BaseException:
        _end_jvm(seconds=2)
        if server is not None:
            server.stop()
        directory.remove()
        raise
    return _Running(session, asked, directory, server, warm_up(session))


def _end_jvm(seconds: float) -> None:
    """End the JVM behind the gateway, if it is a child of this process, and wait until it is gone."""
    gateway: Any = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None:
        return
    SparkContext._gateway = None
    SparkContext._jvm = None
    with contextlib.suppress(Exception):  # It may be dead already: then there is nobody to tell.
        gateway.shutdown()
    if process is None:
        return
    if process.stdin is not None:
        # The JVM leaves when this pipe breaks.
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _environment(java_home: Path, python: str) -> Iterator[None]:
    """What Spark reads from the environment while it starts, put back afterwards.

    Set for another Spark or another Java, some of these would start the wrong one.
    """
    wanted: dict[str, str | None] = {
        "JAVA_HOME": str(java_home),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_HOME": None,
        "SPARK_CONF_DIR": None,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    before = {name: os.environ.get(name) for name in wanted}
    _set_environment(wanted)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _is_alive(session: SparkSession) -> bool:
    context = session.sparkContext
    if context._jsc is None:
        return False
    process = getattr(SparkContext._gateway, "proc", None)
    return process is None or process.poll() is None


def _default_session() -> SparkSession | None:
    session = SparkSession._instantiatedSession
    return session if session is not None and _is_alive(session) else None


def _fit(
    session: SparkSession, cores: int | None, memory: str | None, ui: bool, config: Mapping[str, object]
) -> SparkSession:
    """A session that we did not start, if it is as asked for and can run a job; else `SessionConflict`."""
    wanted = {STATE_STORE: ROCKSDB, **({"spark.driver.memory": memory} if memory is not None else {})}
    wanted |= {**({"spark.ui.enabled": "true"} if ui else {}), **{key: spelled(value) for key, value in config.items()}}
    has = {key: _setting(session, key) for key in wanted}
    unfit: dict[str, tuple[object, object]] = {
        key: (wanted[key], has[key]) for key in wanted if has[key] != wanted[key]
    }
    settable = [key for key in unfit if session.conf.isModifiable(key)]
    if cores is not None and cores != session.sparkContext.defaultParallelism:
        unfit["cores"] = (cores, session.sparkContext.defaultParallelism)
    if unfit:
        raise SessionConflict.from_foreign(unfit, settable)
    check_workers(session)
    return session


def _setting(session: SparkSession, key: str) -> str | None:
    try:
        return session.conf.get(key)
    except SparkNoSuchElementException:
        return _SPARKS_OWN.get(key)


def _forget_dead(session: SparkSession) -> None:
    """What `SparkSession.stop` does on this side. It asks the JVM first, which is gone here."""
    session.sparkContext._jsc = None
    session.sparkContext.stop()
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


def _forget() -> None:
    """In a forked child: the JVM belongs to the parent, which goes on using it."""
    global _running, _lock
    _lock = threading.RLock()
    if _running is not None and _running.server is not None:
        _running.server.release()
    _running = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


os.register_at_fork(after_in_child=_forget)
atexit.register(stop_session)
