"""Whether the Python processes that a Spark session starts can run a job.

A session of one's own starts `python3` for them unless PYSPARK_PYTHON says otherwise: often the system's, without Arrow.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import lru_cache

from pyspark.sql import SparkSession

from workbench.errors import SessionConflict
from workbench.session.commands import python_behind

_NEEDED = ("google.protobuf", "numpy", "pandas", "pyarrow")
_SECONDS = 30
_QUESTION = """
import importlib.util, json, sys
def is_there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False
print(json.dumps(["%d.%d" % sys.version_info[:2], [name for name in sys.argv[1:] if not is_there(name)]]))
"""


def check_workers(spark: SparkSession) -> None:
    """Raise `SessionConflict` unless the workers of `spark` are of our Python version and have what a job imports.

    Asks the interpreter, once in a process, unless it is our own; runs no Spark job. On a cluster, the path is looked up
    on this machine, where Spark starts the same Python for streaming sources and sinks.
    """
    if not isinstance(spark, SparkSession):
        raise SessionConflict.not_classic(spark)
    command = str(spark.sparkContext.pythonExec)
    path = shutil.which(python_behind(command))
    if path is None:
        raise SessionConflict.of_workers(command, "which is not there", sys.executable)
    if os.path.abspath(path) == os.path.abspath(sys.executable):
        return
    # A cluster may be sent this package with the job (addPyFile), but not what is compiled.
    needed = (*_NEEDED, "workbench") if str(spark.sparkContext.master).startswith("local") else _NEEDED
    flaw = _flaw(os.path.abspath(path), needed)
    if flaw is not None:
        shown = command if command == path else f"{command} ({path})"
        raise SessionConflict.of_workers(shown, flaw, sys.executable)


@lru_cache
def _flaw(path: str, needed: tuple[str, ...]) -> str | None:
    """Why workers can not be this interpreter, or None if they can."""
    try:
        asked = subprocess.run(
            [path, "-c", _QUESTION, *needed], capture_output=True, text=True, timeout=_SECONDS, check=True
        )
        version, missing = json.loads(asked.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return f"which does not run ({type(error).__name__})"
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if version != ours:
        return f"which is Python {version}, and this is {ours}"
    return f"which has no {' and no '.join(missing)}" if missing else None
