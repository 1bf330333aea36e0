"""Drain, the part without Spark: what asks for it, where that is kept, and how a running job notices it.

Source: "Drain" design document of Apache Samza (`DrainNotification`, `DrainUtils`, `DrainMonitor`).
"""

from workbench.drain.monitor import DrainMonitor
from workbench.drain.notification import DrainMode, DrainNotification
from workbench.drain.store import (
    NAMESPACE,
    Notifications,
    Unreadable,
    clean_up,
    clean_up_all,
    clean_up_in,
    read_notifications,
    write_notification,
)

__all__ = [
    "NAMESPACE",
    "DrainMode",
    "DrainMonitor",
    "DrainNotification",
    "Notifications",
    "Unreadable",
    "clean_up",
    "clean_up_all",
    "clean_up_in",
    "read_notifications",
    "write_notification",
]
