"""The two commands through which Spark starts Python and Java.

Each is a few lines of shell that change what Spark asks for and then become the real program.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from workbench.session import forkserver
from workbench.session.forkserver import client

DAEMON = "workbench.session.daemon"
"""The module in the place of Spark's daemon, for the processes too for which Spark takes no setting."""

_HERE = Path(__file__).resolve().parents[2]
_PYTHON_OF: dict[str, str] = {}
"""What the commands become that this process has written."""

_PYTHON = """\
#!/bin/sh
# Starts Python for Spark, without the archives that Spark puts before the installed packages.
set -f
kept=
IFS=:
for entry in $PYTHONPATH {own}; do
  case $entry in
    */pyspark.zip | */py4j-*-src.zip | *.jar | '') continue ;;
  esac
  case :$kept: in
    *:"$entry":*) ;;
    *) kept=$kept${{kept:+:}}$entry ;;
  esac
done
unset IFS
if [ -n "$kept" ]; then export PYTHONPATH="$kept"; else unset PYTHONPATH; fi
# As Spark has it for workers: what is equal must hash equally in all processes of a session.
export PYTHONHASHSEED="${{PYTHONHASHSEED:-0}}"
case $1 in -m) ;; *) exec {python} "$@" ;; esac
case $2 in
  {server}) exec {python} "$@" ;;
  pyspark.daemon) shift 2; set -- -m {daemon} "$@" ;;
  # This one tells its progress on its output, which Spark would copy to the user's screen. Its errors stay visible.
  pyspark.sql.streaming.transform_with_state_driver_worker) exec >/dev/null ;;
esac
exec {python} -I -S {client} {directory} {python} "$@"
"""


_JAVA = """\
#!/bin/sh
# Starts Java for Spark, without a module that Spark's own code does not need here: it makes Java print a warning at
# each start, and keeps it from using its archive of modules.
for argument do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


def worker_command(directory: Path, python: str = sys.executable) -> str:
    """Write the command that starts Python workers into `directory` and return its path.

    Spark puts its own `pyspark.zip` first on the PYTHONPATH of every Python process that it starts. A zip holds no
    bytecode, so each process compiles PySpark again: 1.8 s instead of 0.45 s. The command takes the zip off the path;
    the PySpark installed for `python` is the same one.

    A module is run by the session's fork server, if there is one.

    The directory that holds this package comes last on the path, so that workers have it wherever the driver found it.

    Where files in `directory` may not be executed, `python` itself is returned: slower, not wrong.
    """
    path = directory / "python"
    script = _PYTHON.format(
        python=shlex.quote(python),
        own="" if _HERE.name == "site-packages" else shlex.quote(str(_HERE)),
        server=forkserver.__name__,
        daemon=DAEMON,
        client=shlex.quote(client.__file__),
        directory=shlex.quote(str(directory)),
    )
    if not _write(path, script):
        return python
    _PYTHON_OF[str(path)] = python
    return str(path)


def python_behind(command: str) -> str:
    """The Python that `command` starts, if it is one of ours; else `command` itself."""
    return _PYTHON_OF.get(command, command)


def java_command(directory: Path, java_home: Path) -> Path:
    """Write the command that starts Java into `directory` and return what is to be Spark's JAVA_HOME.

    Where files in `directory` may not be executed, this is `java_home` itself: one warning more, not wrong.
    """
    path = directory / "java" / "bin" / "java"
    path.parent.mkdir(parents=True)
    return (
        directory / "java"
        if _write(path, _JAVA.format(java=shlex.quote(str(java_home / "bin" / "java"))))
        else java_home
    )


def _write(path: Path, script: str) -> bool:
    path.write_text(script)
    path.chmod(0o700)
    return os.access(path, os.X_OK)
