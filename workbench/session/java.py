"""Finding a Java that Spark runs on.

Run as a file, it prints the home directory of the Java that a session would use, or one sentence and exit code 1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from workbench.errors import JavaNotFound

OLDEST_JAVA = 17
"""The oldest major version that Spark 4 starts on."""

_NEEDED_MODULE = "jdk.incubator.vector"
_USUAL_PLACES = ("/usr/lib/jvm", "/Library/Java/JavaVirtualMachines", "/opt/java")
_PROPERTY = re.compile(r"^\s*(java\.home|java\.specification\.version) = (.+)$", re.MULTILINE)


class Java(NamedTuple):
    """A Java runtime: its home directory, its version as it says itself, and what keeps Spark from running on it."""

    home: Path
    version: str
    flaw: str | None

    @property
    def major(self) -> int:
        """17 for "17.0.15", 8 for "1.8.0_392"."""
        numbers = re.findall(r"\d+", self.version)
        return int(numbers[1] if numbers[:1] == ["1"] and len(numbers) > 1 else numbers[0]) if numbers else 0


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The first Java of version 17 or newer among JAVA_HOME, PATH, this Python's environment and the usual places.

    Raises `JavaNotFound`, which names what was found instead.
    """
    environment = os.environ if environment is None else environment
    unfit: list[Java] = []
    for home in _candidates(environment):
        java = inspect_java(home)
        if java is None or java in unfit:
            continue
        if java.flaw is None:
            return java
        unfit.append(java)
    raise JavaNotFound.from_found(OLDEST_JAVA, [f"{java.home} ({java.flaw})" for java in unfit])


def inspect_java(home: Path) -> Java | None:
    """What is known of the Java in `home`; None if there is none.

    The `release` file of the installation is read, which costs nothing. Where it is missing, Java itself is asked.
    """
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    try:
        release = dict(
            line.strip().split("=", 1) for line in (home / "release").read_text().splitlines() if "=" in line
        )
    except OSError:
        release = {}
    version = release.get("JAVA_VERSION", "").strip('"')
    if not version:
        asked = _ask(home / "bin" / "java")
        if asked is None:
            return None
        home, version = asked
    java = Java(home, version, None)
    modules = release.get("MODULES", "").strip('"').split()
    if java.major < OLDEST_JAVA:
        return java._replace(flaw=f"version {version}")
    if modules and _NEEDED_MODULE not in modules:
        return java._replace(flaw=f"version {version}, but without the module {_NEEDED_MODULE}")
    return java


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    command = shutil.which("java", path=environment.get("PATH", os.defpath))
    if command:
        home = Path(command).resolve().parent.parent
        # A version manager puts a script on the PATH; only Java itself can say where it lives.
        asked = None if (home / "release").exists() else _ask(Path(command))
        yield asked[0] if asked else home
    for prefix in (sys.prefix, environment.get("CONDA_PREFIX")):
        if prefix:
            yield Path(prefix, "lib", "jvm")
    for place in _USUAL_PLACES:
        for home in sorted(Path(place).glob("*")):
            yield from (home.resolve(), home / "Contents" / "Home")


def _ask(java: Path) -> tuple[Path, str] | None:
    try:
        answer = subprocess.run(
            [java, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    properties = dict(_PROPERTY.findall(answer.stderr))
    if len(properties) < 2:
        return None
    return Path(properties["java.home"]), properties["java.specification.version"]


if __name__ == "__main__":
    try:
        print(find_java().home)
    except JavaNotFound as error:
        sys.exit(str(error))
