"""A local session: fast, silent, shared, and gone without a trace. Each test has a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from workbench.errors import SessionConflict
from workbench.session import local, local_session
from workbench.session.settings import ROCKSDB, STATE_STORE

ROOT = Path(__file__).parents[2]


def run(script: str, cwd: Path, environment: dict[str, str] | None = None) -> tuple[dict[str, Any], str]:
    """Run `script` in a fresh interpreter in `cwd`; its last line is JSON. Returns that and the standard error."""
    temporary = cwd.parent / f"{cwd.name} tmp"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    result["printed"] = done.stdout.strip().splitlines()[:-1]
    result["left"] = sorted(path.name for path in [*cwd.iterdir(), *temporary.iterdir()])
    return result, done.stderr


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    directory = tmp_path / "it's $HOME; a `place`"
    directory.mkdir()
    return directory


@pytest.mark.slow
def test_a_job_runs_without_a_word_and_leaves_nothing_behind(empty: Path) -> None:
    script = """
        import json, sys
        from workbench.session import local_session, stop_session
        from workbench.session.training import train
        from pyspark import SparkContext
        spark = local_session(cores=2)
        train(spark)
        spark.sql("create database flights")
        process = SparkContext._gateway.proc
        print("stopping", file=sys.stderr, flush=True)
        stop_session()
        stop_session()
        print(json.dumps({"java": process.poll(), "gateway": SparkContext._gateway is None}))
    """
    # What another Spark, Java or front end would need must not reach ours.
    foreign = {
        "SPARK_HOME": "/nowhere",
        "PYSPARK_DRIVER_PYTHON": "jupyter",
        "PYSPARK_PYTHON": "python-of-another",
        "JAVA_HOME": "/nowhere",
    }
    result, errors = run(script, empty, foreign)
    assert errors.partition("stopping")[0] == ""
    assert result["printed"] == []
    assert result["left"] == []
    assert result["java"] is not None
    assert result["gateway"] is True


@pytest.mark.slow
def test_a_failing_query_tells_its_reason_once_and_real_errors_stay_visible(empty: Path) -> None:
    script = """
        import json, sys
        from pyspark.sql.functions import udf
        from workbench.session import local_session, stop_session
        spark = local_session(cores=2)
        def fail(value):
            raise ValueError("a user's own trouble")
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        query = source.select(udf(fail, "int")("value")).writeStream.format("noop").start()
        try:
            query.awaitTermination(60)
        except Exception as error:
            reason = str(error)
        logger = spark._jvm.org.apache.log4j.LogManager.getLogger("org.apache.spark.storage.BlockManager")
        logger.error("a disk is gone")
        print("stopping", file=sys.stderr, flush=True)
        stop_session()
        print(json.dumps({"reason": reason}))
    """
    result, errors = run(script, empty)
    assert "a user's own trouble" in result["reason"]
    said = errors.partition("stopping")[0].splitlines()
    assert len(said) == 1
    assert said[0].endswith("Spark ERROR BlockManager: a disk is gone")


@pytest.mark.slow
def test_a_process_that_just_ends_leaves_no_java_and_a_second_session_can_follow_the_first(empty: Path) -> None:
    script = """
        import json
        from pyspark import SparkContext
        from workbench.session import local_session, stop_session
        first = local_session(cores=1)
        count = first.range(7).count()
        stop_session()
        second = local_session(cores=1, config={"spark.sql.shuffle.partitions": 5})
        same = local_session(cores=1, config={"spark.sql.shuffle.partitions": 5}) is second
        print(json.dumps({
            "count": count, "same": same, "partitions": second.conf.get("spark.sql.shuffle.partitions"),
            "cores": second.sparkContext.defaultParallelism, "java": SparkContext._gateway.proc.pid,
        }))
    """
    result, _ = run(script, empty)
    assert (result["count"], result["same"], result["partitions"], result["cores"]) == (7, True, "5", 1)
    assert not Path(f"/proc/{result['java']}").exists()
    assert result["left"] == []


@pytest.mark.slow
def test_workers_are_forked_from_one_server_and_start_as_ever_when_it_is_gone(empty: Path) -> None:
    script = """
        import json, os, pathlib, shutil, signal, sys, traceback
        import pandas as pd
        import psutil
        from pyspark.sql.functions import pandas_udf, udf
        from workbench.session import local, local_session, stop_session
        from workbench.session.training import train

        pathlib.Path("beside_the_notebook.py").write_text("VALUE = 1")
        spark = local_session(cores=2, config={"spark.executorEnv.MY_OWN": "a value"})
        pathlib.Path("made_later.py").write_text("VALUE = 20")
        server = local._running.server.pid

        @udf("int")
        def with_modules(value):
            import beside_the_notebook, made_later
            return value + beside_the_notebook.VALUE + made_later.VALUE

        @pandas_udf("double")
        def with_pandas(values: pd.Series) -> pd.Series:
            return values * 0.5

        @udf("int")
        def failing(value):
            return value + "a user's own mistake"

        def about_worker(_):
            worker = psutil.Process()
            return worker.parent().ppid(), os.environ.get("MY_OWN"), os.getcwd(), os.path.isdir(sys.path[0]), sys.path[0]

        def look():
            rows = spark.range(2).select(with_modules("id"), with_pandas("id")).collect()
            try:
                spark.range(1).select(failing("id")).collect()
            except Exception as error:
                reason = str(error)
            [about] = spark.sparkContext.parallelize([0], 1).map(about_worker).collect()
            return {"rows": sorted(map(list, rows)), "reason": reason, "about": about}

        served = look()
        train(spark)
        # The server dies in the middle of a session: what runs goes on, and what starts from now on does so by itself.
        os.kill(server, signal.SIGKILL)
        psutil.Process(server).wait(10)
        orphaned = look()
        train(spark)
        family = [p.pid for p in psutil.Process().children(recursive=True)]
        print("stopping", file=sys.stderr, flush=True)
        stop_session()
        left = psutil.wait_procs([psutil.Process(pid) for pid in family if psutil.pid_exists(pid)], timeout=10)[1]
        second = local_session(cores=2)
        [about] = second.sparkContext.parallelize([0], 1).map(about_worker).collect()
        again = [about[0], local._running.server.pid]
        family = psutil.Process().children(recursive=True)
        stop_session()
        left += psutil.wait_procs(family, timeout=10)[1]
        for module in ("beside_the_notebook.py", "made_later.py"):
            os.unlink(module)
        shutil.rmtree("__pycache__", ignore_errors=True)  # of those two modules, where bytecode is written
        print(json.dumps({
            "served": served, "orphaned": orphaned, "server": server, "again": again, "left": [str(p) for p in left],
        }))
    """
    result, errors = run(script, empty)
    assert errors.partition("stopping")[0] == ""
    assert result["left"] == [], "files, and processes"
    for look in (result["served"], result["orphaned"]):
        assert look["rows"] == [[21, 0.0], [22, 0.5]]
        assert "TypeError: unsupported operand type(s) for +: 'int' and 'str'" in look["reason"]
        assert 'File "<string>", line' in look["reason"] and "forkserver" not in look["reason"]
        assert look["about"][1:] == ["a value", str(empty), True, str(empty)]
    assert result["served"]["about"][0] == result["server"]
    assert result["again"][0] == result["again"][1] != result["server"]


@pytest.mark.slow
def test_a_session_may_stop_at_once_while_it_is_still_warming_up(empty: Path) -> None:
    script = """
        import json
        from workbench.session import local, local_session, stop_session
        local_session(cores=1)
        warming = local._running.warming
        was_warming = warming.is_alive()
        stop_session()
        print(json.dumps({"was_warming": was_warming, "is_warming": warming.is_alive()}))
    """
    result, errors = run(script, empty)
    assert (result["was_warming"], result["is_warming"], result["left"], errors) == (True, False, [], "")


def test_what_a_job_loads_is_loaded_before_it_asks(spark: SparkSession) -> None:
    assert local._running is not None
    local._running.warming.join(20)
    assert list(local._running.directory.path.glob("librocksdbjni*.so")), "the state store's library is unpacked"


@pytest.mark.slow
def test_nothing_is_left_running_when_the_driver_is_killed(empty: Path) -> None:
    psutil = pytest.importorskip("psutil")
    script = """
        import sys, time
        from workbench.session import local, local_session
        from workbench.session.training import TrainingSource
        spark = local_session(cores=2)
        spark.sparkContext.parallelize([0], 1).map(lambda n: n).collect()
        spark.dataSource.register(TrainingSource)
        query = spark.readStream.format(TrainingSource.name()).load().writeStream.format("noop").start()
        query.processAllAvailable()
        print(local._running.server.pid, flush=True)
        time.sleep(600)
    """
    driver = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=empty,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert driver.stdout is not None
    server = psutil.Process(int(driver.stdout.readline()))
    assert len(server.children()) >= 2
    family = psutil.Process(driver.pid).children(recursive=True)
    assert server in family
    driver.kill()
    driver.communicate()
    assert psutil.wait_procs(family, timeout=20)[1] == []


@pytest.mark.slow
def test_the_files_of_a_killed_session_are_removed_by_the_next_and_those_of_a_living_one_are_not(empty: Path) -> None:
    script = """
        import sys
        from workbench.session import local, local_session
        spark = local_session(cores=1)
        print(local._running.directory.path, flush=True)
        sys.stdin.readline()
        print(spark.range(3).count(), flush=True)
    """
    temporary = empty.parent / f"{empty.name} tmp"
    temporary.mkdir()

    def session() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)],
            cwd=empty,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    living, killed = session(), session()
    assert living.stdout is not None and killed.stdout is not None
    in_use, left = (Path(process.stdout.readline().strip()) for process in (living, killed) if process.stdout)
    killed.kill()
    killed.communicate()
    assert sorted(temporary.iterdir()) == sorted([in_use, left])
    following = session()
    assert following.stdout is not None
    third = Path(following.stdout.readline().strip())
    assert sorted(temporary.iterdir()) == sorted([in_use, third])
    assert [process.communicate("go on\n", timeout=60)[0] for process in (living, following)] == ["3\n", "3\n"]
    assert list(temporary.iterdir()) == []


def test_workers_import_the_installed_pyspark_and_have_pandas_and_this_package_before_they_are_asked(
    spark: SparkSession,
) -> None:
    def where(_: object) -> tuple[str, set[str]]:
        import sys

        import pyspark

        return pyspark.__file__, {"pandas", "pyarrow", "workbench"} & set(sys.modules)

    [(path, modules)] = spark.sparkContext.parallelize([0], 1).map(where).collect()
    assert ".zip" not in path
    assert modules == {"pandas", "pyarrow", "workbench"}


def test_the_session_is_reachable_from_this_machine_only(spark: SparkSession) -> None:
    psutil = pytest.importorskip("psutil")
    java = psutil.Process(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]
    listening = {c.laddr.ip for c in java.net_connections("inet") if c.status == psutil.CONN_LISTEN}
    assert listening
    assert listening <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def test_it_has_what_a_job_needs(spark: SparkSession) -> None:
    assert spark.conf.get(STATE_STORE) == ROCKSDB
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.ui.enabled") == "false"


def test_asking_for_other_settings_names_the_differences(spark: SparkSession) -> None:
    assert local_session(cores=2) is spark
    with pytest.raises(SessionConflict, match=r"memory='3g' \(active: '2g'\).*stop_session\(\)"):
        local_session(cores=2, memory="3g")


@pytest.mark.slow
def test_a_foreign_session_is_taken_if_it_fits_and_refused_with_a_reason_if_not(empty: Path) -> None:
    script = """
        import json, os, sys
        from pyspark.sql import SparkSession
        from workbench.errors import SessionConflict
        from workbench.session import find_java, local_session, stop_session
        from workbench.session.archive import archive_for
        from workbench.session.settings import ROCKSDB, STATE_STORE
        from workbench.session.workers import check_workers

        os.environ["PYSPARK_PYTHON"] = sys.executable
        archive = archive_for(find_java())
        options = "-XX:TieredStopAtLevel=1 -Xshare:auto" + (f" -XX:SharedArchiveFile={archive}" if archive else "")
        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        theirs = builder.config("spark.driver.extraJavaOptions", options).getOrCreate()

        def refused(**asked):
            try:
                return f"taken: {local_session(**asked)}"
            except SessionConflict as error:
                return str(error)

        reasons = {"store": refused()}
        theirs.conf.set(STATE_STORE, ROCKSDB)
        reasons["asked"] = refused(cores=3, memory="3g", ui=True, config={"spark.sql.shuffle.partitions": 7})
        taken = local_session() is local_session(cores=1, memory="1g") is theirs
        check_workers(theirs)
        # As it is where PYSPARK_PYTHON is not set and python3 is another one.
        with open("python3", "w") as other:
            other.write("#!/bin/sh\\necho '[\\"3.2\\", []]'\\n")
        os.chmod("python3", 0o700)
        theirs.sparkContext.pythonExec = os.path.abspath("python3")
        reasons["python"] = refused()
        os.unlink("python3")
        stop_session()
        alive = not theirs.sparkContext._jsc.sc().isStopped()
        theirs.stop()
        ours = local_session(cores=1)
        check_workers(ours)
        options = ours.sparkContext._jvm.System.getProperty("java.io.tmpdir")
        print(json.dumps({"reasons": reasons, "taken": taken, "alive": alive, "ours": options}))
    """
    result, _ = run(script, empty)
    reasons = result["reasons"]
    assert reasons["store"] == (
        f"The active Spark session, which local_session() did not start, does not fit: {STATE_STORE} must be {ROCKSDB}"
        " (is org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider)."
        f" Call spark.conf.set('{STATE_STORE}', '{ROCKSDB}'), or stop it with spark.stop() and call"
        " local_session() again."
    )
    assert reasons["asked"] == (
        "The active Spark session, which local_session() did not start, does not fit: spark.driver.memory must be 3g (is"
        " 1g), spark.ui.enabled must be true (is false), spark.sql.shuffle.partitions must be 7 (is 200), cores must be 3"
        " (is 1). Stop it with spark.stop() and call local_session() again."
    )
    assert "for its workers, which is Python 3.2, and this is" in reasons["python"]
    assert (result["taken"], result["alive"]) == (True, True)
    # The Java of the stopped session has been replaced by one with our options.
    assert "tidemark-session-" in result["ours"]
