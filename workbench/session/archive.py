"""The class-data archive: Spark's classes as the JVM holds them in memory, mapped instead of loaded.

Made once by `make` inside the Python environment, for one Java and one Spark.
A session takes it if it is there and does without if not.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark

from workbench.session.java import Java, find_java


def archive_path(java: Java) -> Path:
    """Where the archive for `java` and the installed Spark belongs."""
    return Path(sys.prefix, "share", "tidemark", f"spark-{pyspark.__version__}-java-{java.version}.jsa")


def archive_for(java: Java) -> Path | None:
    """The archive for `java`, if it was made."""
    path = archive_path(java)
    return path if path.is_file() else None


def make_archive() -> Path:
    """Run a small streaming query, have the JVM write down the classes it used, and return the archive's path."""
    from workbench.session.local import local_session, stop_session
    from workbench.session.training import train

    path = archive_path(find_java())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    half = path.with_suffix(".new")
    half.unlink(missing_ok=True)
    session = local_session(config={"spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={half}"'})
    train(session)
    stop_session(seconds=300)
    return half.rename(path)
