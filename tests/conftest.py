"""What tests share: one Spark session for all, and a place for a log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from workbench.session import local_session, stop_session

# The same examples at every run, so that a change of ours is what turns a test red; `make explore` draws new ones.
settings.register_profile("same", derandomize=True)
settings.register_profile("explore", print_blob=True)
settings.load_profile("same")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of the test run: two cores, as small machines have."""
    yield local_session("tidemark-tests", cores=2)
    stop_session()


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A directory for a stream log that does not exist yet; its name needs quoting, as names of users do."""
    return tmp_path / "a log's directory"
