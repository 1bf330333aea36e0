"""One Python with everything imported, from which a session's other Python processes are forked.

Spark starts about ten Python processes one after another before the first batch of a job is committed, and each would
start an interpreter and import PySpark, pandas and Arrow anew. The server does that once, while the JVM starts; what
it forks is there in milliseconds, and shares its memory until it writes to it.

`client` runs where Spark expects Python, `server` answers it, `request` is what passes between them and what a forked
process does with it, `preload` is what is imported beforehand. This module is the driver's side.
"""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

from workbench.session.forkserver.client import Address

_SETTINGS = {
    # As Spark has it for its workers: what is equal must hash equally in all of them.
    "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
    "PYTHONUNBUFFERED": "YES",
    # A thread does not survive a fork: neither those of OpenBLAS, nor the one that tidies Arrow's second allocator.
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}


class ForkServer:
    """The server of one session. It ends when told to, or when the process that started it has ended in any way."""

    def __init__(self, process: subprocess.Popen[bytes], lifeline: int) -> None:
        self._process = process
        self._lifeline: int | None = lifeline

    @classmethod
    def start(cls, directory: Path, python: str) -> ForkServer | None:
        """Start the server of the session in `directory` with the command `python`, and do not wait for it.

        Whoever asks before it is ready is queued by the system, and told by the system if it ends before. None where a
        socket cannot be made: Python then starts as ever.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            try:
                with Address(directory) as path:
                    listener.bind(path)
                listener.listen(socket.SOMAXCONN)
            except OSError:
                return None
            held, lifeline = os.pipe()
            try:
                process = subprocess.Popen(
                    # Java keeps interrupts meant for the user's cell from its children; so does this.
                    ["sh", "-c", 'trap "" INT; exec "$@"', "sh", python, "-m", __name__, str(listener.fileno())],
                    stdin=held,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[listener.fileno()],
                    env={**os.environ, **_SETTINGS},
                )
            except OSError:
                os.close(lifeline)
                return None
            finally:
                os.close(held)
        return cls(process, lifeline)

    @property
    def pid(self) -> int:
        """The server's process, which is the parent of those that it forks."""
        return self._process.pid

    def stop(self, seconds: float = 15) -> None:
        """Have the server end what it forked, then itself, and wait until it is gone. Idempotent.

        After `seconds` it is killed.
        """
        self.release()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def release(self) -> None:
        """Let go of the server. It ends when every process that holds it has let go: a forked driver does at once."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
