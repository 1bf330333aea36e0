"""Tidemark: Apache Samza's stream control on Apache Spark, in a notebook.

    import workbench as wb

    spark, log = wb.local_session(), wb.StreamLog("var/log")
    app = wb.Application("hourly")
    app.input("flights", event_time="event_time", out_of_orderness="2h") …
    run = app.deploy(spark, log)

Names are loaded when they are first used: Spark's workers import parts of this package and should not pay for the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.engine.connector import register
    from workbench.engine.record import open_record, read_bookkeeping
    from workbench.engine.run import Run
    from workbench.engine.task import Routing
    from workbench.errors import TidemarkError
    from workbench.graph import Application
    from workbench.messages import DrainMessage, EndOfStreamMessage, WatermarkMessage
    from workbench.names import SSP
    from workbench.session import local_session, stop_session
    from workbench.startpoints import (
        StartpointManager,
        StartpointOldest,
        StartpointSpecific,
        StartpointTimestamp,
        StartpointUpcoming,
    )
    from workbench.systems.log import StreamLog
    from workbench.windows import quantile, sliding, tumbling
    from workbench.windows import session as session_window

__version__ = "0.1.0"

_HOME = {
    "Application": "workbench.graph",
    "DrainMessage": "workbench.messages",
    "EndOfStreamMessage": "workbench.messages",
    "Routing": "workbench.engine.task",
    "Run": "workbench.engine.run",
    "SSP": "workbench.names",
    "StartpointManager": "workbench.startpoints",
    "StartpointOldest": "workbench.startpoints",
    "StartpointSpecific": "workbench.startpoints",
    "StartpointTimestamp": "workbench.startpoints",
    "StartpointUpcoming": "workbench.startpoints",
    "StreamLog": "workbench.systems.log",
    "TidemarkError": "workbench.errors",
    "WatermarkMessage": "workbench.messages",
    "local_session": "workbench.session",
    "open_record": "workbench.engine.record",
    "quantile": "workbench.windows",
    "read_bookkeeping": "workbench.engine.record",
    "register": "workbench.engine.connector",
    "session_window": "workbench.windows",
    "sliding": "workbench.windows",
    "stop_session": "workbench.session",
    "tumbling": "workbench.windows",
}

__all__ = [
    "SSP",
    "Application",
    "DrainMessage",
    "EndOfStreamMessage",
    "Routing",
    "Run",
    "StartpointManager",
    "StartpointOldest",
    "StartpointSpecific",
    "StartpointTimestamp",
    "StartpointUpcoming",
    "StreamLog",
    "TidemarkError",
    "WatermarkMessage",
    "local_session",
    "open_record",
    "quantile",
    "read_bookkeeping",
    "register",
    "session_window",
    "sliding",
    "stop_session",
    "tumbling",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'workbench' has no attribute {name!r}")
    # `session` is the room of Spark sessions here; the window of that name goes by `session_window`.
    return getattr(import_module(_HOME[name]), "session" if name == "session_window" else name)


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
