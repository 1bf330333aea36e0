"""Java and the Spark session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from workbench.errors._base import TidemarkError, did_you_mean, listing


class JavaNotFound(TidemarkError, RuntimeError):
    """No Java that Spark runs on."""

    @classmethod
    def from_found(cls, oldest: int, found: Sequence[str]) -> JavaNotFound:
        there = f"Found, but unfit: {', '.join(found)}." if found else "None was found."
        return cls(
            f"Spark needs Java {oldest} or newer. {there} Install openjdk-{oldest}-jre-headless (Debian, Ubuntu) or openjdk"
            " (conda), or set JAVA_HOME to one."
        )


class InvalidSetting(TidemarkError, ValueError):
    """A setting that a local session can not have."""

    @classmethod
    def not_cores(cls, cores: object) -> InvalidSetting:
        return cls(f"cores must be a whole number of at least 1, not {cores!r}.")

    @classmethod
    def not_memory(cls, memory: object) -> InvalidSetting:
        return cls(f"memory must be a number and a unit, such as '2g' or '512m', not {memory!r}.")

    @classmethod
    def not_of_spark(cls, key: str) -> InvalidSetting:
        return cls(f"config takes settings of Spark, whose names start with 'spark.'; {key!r} does not.")


class SessionConflict(TidemarkError, RuntimeError):
    """A Spark session is active, and it is not the one asked for."""

    @classmethod
    def from_settings(cls, asked: Mapping[str, object], have: Mapping[str, object]) -> SessionConflict:
        differ = [name for name in {**have, **asked} if asked.get(name) != have.get(name)]
        listed = ", ".join(f"{name}={asked.get(name)!r} (active: {have.get(name)!r})" for name in differ)
        return cls(f"The local session is active with other settings: {listed}. Call stop_session() first.")

    @classmethod
    def from_foreign(cls, unfit: Mapping[str, tuple[object, object]], settable: Iterable[str]) -> SessionConflict:
        """`unfit` are (wanted, actual or None) by name; `settable` are those that a living session can change."""
        listed = ", ".join(
            f"{name} must be {wanted} ({'is not set' if has is None else f'is {has}'})"
            for name, (wanted, has) in unfit.items()
        )
        calls = ", ".join(f"spark.conf.set({name!r}, {str(unfit[name][0])!r})" for name in settable)
        cure = f"Call {calls}, or stop it" if len(calls) and set(settable) == set(unfit) else "Stop it"
        return cls(
            f"The active Spark session, which local_session() did not start, does not fit: {listed}. {cure} with"
            " spark.stop() and call local_session() again."
        )

    @classmethod
    def of_workers(cls, command: str, flaw: str, python: str) -> SessionConflict:
        return cls(
            f"This Spark session starts {command} for its workers, {flaw}. Stop it with spark.stop(), then let"
            f" local_session() start one, or set os.environ['PYSPARK_PYTHON'] = sys.executable (here {python}) before you"
            " start your own."
        )

    @classmethod
    def not_classic(cls, session: object) -> SessionConflict:
        kind = f"{type(session).__module__}.{type(session).__qualname__}"
        return cls(
            f"An application runs on a SparkSession of this process, not on {kind} (Spark Connect is a session of another)."
            " local_session() starts one."
        )


class SessionFailed(TidemarkError, RuntimeError):
    """Spark did not start."""

    @classmethod
    def from_cause(cls, cause: Exception) -> SessionFailed:
        first = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
        return cls(f"Spark did not start: {first} What Java said is on the standard error above.")


class UnknownEnvironment(TidemarkError, ValueError):
    """A place to show progress that there is not."""

    @classmethod
    def from_known(cls, name: str, known: Iterable[str]) -> UnknownEnvironment:
        return cls(f"Progress can not be shown in {name!r}. It can be: {listing(known)}.{did_you_mean(name, known)}")
