"""The shape of what `make bench` writes. Never a time: those depend on the machine."""

from __future__ import annotations

import json
from pathlib import Path

from tests.benchmarks.__main__ import main
from tests.benchmarks.results import Demand, Result, table


def test_results_have_the_fields_that_other_tools_read_and_say_what_was_demanded(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    results = main(["--quick", "--only", "control-messages", "--output", str(output)])
    written = json.loads(output.read_text())
    assert len(written) == len(results) > 0
    for line in written:
        assert set(line) == {"name", "unit", "ours", "peer", "limit", "ratio", "notes"}
        assert line["ours"] > 0
    counted = {line["name"]: line["ours"] for line in written if "message" in line["unit"]}
    assert all(float(count).is_integer() for count in counted.values())


def test_a_figure_that_misses_what_was_demanded_says_by_how_much() -> None:
    met, missed = (
        Result(
            "throughput", "events/s", ours, 100.0, ratio=ours / 100, demands=[Demand("as fast as Spark", at_least=1)]
        )
        for ours in (150.0, 80.0)
    )
    assert met.verdicts() == ["as fast as Spark: met (1.5)"]
    assert missed.verdicts() == ["as fast as Spark: missed by 20% (0.8)"]
    assert "missed by 20%" in table([met, missed])
