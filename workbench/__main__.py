"""`python -m workbench …`: the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from workbench.commands import drain, startpoint
from workbench.errors import TidemarkError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. An error that we made ourselves is one sentence on stderr, without a trace."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    try:
        return int(chosen.run(chosen))
    except TidemarkError as error:
        print(f"workbench: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="workbench", description="Samza's stream control on Spark, in notebooks.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="run the quickstart notebook on the flights of 2013")
    demo.add_argument(
        "--directory", type=Path, default=Path("var/demo"), help="where everything goes (default: %(default)s)"
    )
    demo.set_defaults(run=_demo)
    status = commands.add_parser("status", help="how far an application's newest run is")
    status.add_argument("log", type=Path, help="directory of the stream log")
    status.add_argument("application", help="name of the application")
    status.set_defaults(run=_status)
    for command in (drain, startpoint):
        command.add_to(commands)
    return parser


def _demo(chosen: argparse.Namespace) -> int:
    from workbench.demo import run_demo

    return run_demo(chosen.directory)


def _status(chosen: argparse.Namespace) -> int:
    from workbench.engine.record import open_record
    from workbench.systems.log import StreamLog

    record = open_record(StreamLog(chosen.log, create=False), chosen.application)
    run = record.last_run
    gone = ", but its process is gone" if run.status == "running" and not record.is_held() else ""
    print(f"run {run.run_id}: {run.status}{gone}" + (f"\n  {run.failure['message']}" if run.failure else ""))
    watermarks = record.watermarks()
    if watermarks.empty:
        print("No batch has been committed yet.")
        return 0
    newest = watermarks[watermarks["batch"] == watermarks["batch"].max()]
    print(newest[["task", "stage", "stream", "watermark", "state"]].to_string(index=False))
    print(", ".join(f"{name.replace('_', ' ')}: {value:,}" for name, value in record.totals().items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
