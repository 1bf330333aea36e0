"""Applications on Spark: deployment, run, and what Spark calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.engine.deployment import deploy
    from workbench.engine.run import Run

__all__ = ["Run", "deploy"]


def __getattr__(name: str) -> Any:
    # Workers import this package's modules by the dozen and need neither of these.
    if name == "deploy":
        from workbench.engine.deployment import deploy

        return deploy
    if name == "Run":
        from workbench.engine.run import Run

        return Run
    raise AttributeError(name)
