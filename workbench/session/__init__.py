"""A local Spark session that starts fast."""

from workbench.session.java import Java, find_java
from workbench.session.local import local_session, stop_session

__all__ = ["Java", "find_java", "local_session", "stop_session"]
