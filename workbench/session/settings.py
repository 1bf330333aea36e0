"""What a local session asks of Spark and of Java, as plain values."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from workbench.errors import InvalidSetting
from workbench.session.commands import DAEMON

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

_MEMORY = re.compile(r"[1-9][0-9]*[kmgt]", re.IGNORECASE)
_LONGEST_SOCKET_DIRECTORY = 55
"""The system allows 104 bytes or more for a socket's path, and Spark's names for them have up to 48."""

_LOG4J = Path(__file__).with_name("log4j2.properties")


def spark_settings(
    app_name: str, cores: int | None, memory: str, ui: bool, config: Mapping[str, object], directory: Path
) -> dict[str, str]:
    """Everything Spark is told, `config` last. `directory` is private to the session and goes with it."""
    cores = len(os.sched_getaffinity(0)) if cores is None else cores
    if isinstance(cores, bool) or not isinstance(cores, int) or cores < 1:
        raise InvalidSetting.not_cores(cores)
    if not isinstance(memory, str) or _MEMORY.fullmatch(memory) is None:
        raise InvalidSetting.not_memory(memory)
    settings = {
        "spark.app.name": app_name,
        "spark.master": f"local[{cores}]",
        "spark.driver.memory": memory,
        # Loopback only: nothing of a local session can be reached from outside.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": (directory / "warehouse").as_uri(),
        "spark.python.daemon.module": DAEMON,
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        # Functions travel with the query, also those that close over a table of some MB: as a broadcast variable, which
        # is what Spark makes of them from 1 MB on, they do not reach the process that declares a stateful operator.
        "spark.broadcast.UDFCompressionThreshold": str(1 << 30),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # transformWithState needs RocksDB; with the changelog a commit writes what changed, not a snapshot.
        STATE_STORE: ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    if len(os.fsencode(directory)) <= _LONGEST_SOCKET_DIRECTORY:
        # State calls are round trips: a tenth of a small batch is saved on sockets of the file system.
        settings["spark.python.unix.domain.socket.enabled"] = "true"
    for key, value in config.items():
        if not key.startswith("spark."):
            raise InvalidSetting.not_of_spark(key)
        settings[key] = spelled(value)
    return settings


def spelled(value: object) -> str:
    """A value of a setting as Spark spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def java_options(directory: Path, archive: Path | None, own: str = "") -> str:
    """The options of the driver's JVM as one line, in the quoting of Spark's launcher; `own` are the user's.

    The work of a job is done by Arrow in Python; the JVM coordinates. So what counts is how soon it is up: the quick
    compiler only, the collector with the fewest threads, no resizing of the area for classes, and classes mapped
    from an archive where there is one.
    """
    options = [
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-XX:MetaspaceSize=256m",
        "-XX:-UsePerfData",
        "-Xshare:auto",
        # An archive of another Java is not used, and that is no news for the user.
        "-Xlog:disable",
        "-Xlog:all=error:stderr",
        f"-Djava.io.tmpdir={directory}",
        f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
    ]
    if archive is not None:
        options.append(f"-XX:SharedArchiveFile={archive}")
    return " ".join([*map(_quoted, options), *([own] if own else [])])


def _quoted(option: str) -> str:
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
