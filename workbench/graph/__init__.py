"""What a user declares: the application, its operators, its stages, its picture."""

from workbench.graph.application import Application, MessageStream, WindowedStream

__all__ = ["Application", "MessageStream", "WindowedStream"]
