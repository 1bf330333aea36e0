"""The project's own files: one set of versions everywhere, notebooks paired and without outputs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import workbench

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SUPPORTED = ("3.11.2", "3.12.0", "3.13.0", "3.14.0")


def disagreements(pyproject: str, lock: str, environment: str) -> list[str]:
    """Where pyproject.toml, requirements.lock and environment.yml (their texts) do not say the same."""
    project = tomllib.loads(pyproject)["project"]
    wanted = [Requirement(text) for text in (*project["dependencies"], *project["optional-dependencies"]["test"])]
    locked = [Requirement(text) for text in re.findall(r"^([a-z0-9][^\\\n]*==[^\\\n]*?) *\\?$", lock, re.MULTILINE)]
    conda: dict[str, str] = {}
    pip: dict[str, str] = {}
    for entry in yaml.safe_load(environment)["dependencies"]:
        if isinstance(entry, str):
            name, _, version = entry.partition("=")
            conda[name] = version
        else:
            for line in entry["pip"]:
                if not line.startswith("-"):
                    name, _, version = line.partition("==")
                    pip[canonicalize_name(name)] = version
    found = []
    for requirement in wanted:
        name = canonicalize_name(requirement.name)
        pins = [pin for pin in locked if canonicalize_name(pin.name) == name]
        for python in SUPPORTED:
            versions = [_version(pin) for pin in pins if pin.marker is None or pin.marker.evaluate(_on(python))]
            if len(versions) != 1 or not requirement.specifier.contains(versions[0]):
                found.append(
                    f"{name}: pyproject wants {requirement.specifier}, Python {python} is locked to {versions}"
                )
        if name not in pip or [pip[name]] != [_version(pin) for pin in pins]:
            found.append(f"{name}: environment.yml has {pip.get(name)}, the lock has {[_version(pin) for pin in pins]}")
    strangers = set(pip) - {canonicalize_name(requirement.name) for requirement in wanted}
    found += [f"{name}: in environment.yml, not in pyproject.toml" for name in sorted(strangers)]
    python = Requirement(f"python{project['requires-python']}").specifier
    if not conda.get("python") or not python.contains(conda["python"]):
        found.append(f"python: pyproject wants {python}, environment.yml has {conda.get('python')}")
    if not conda.get("openjdk") or int(conda["openjdk"].split(".")[0]) < 17:
        found.append(f"openjdk: Spark needs 17, environment.yml has {conda.get('openjdk')}")
    return found


def _version(pin: Requirement) -> str:
    [specifier] = pin.specifier
    return specifier.version


def _on(python: str) -> dict[str, str]:
    major_minor = ".".join(python.split(".")[:2])
    return {"python_full_version": python, "python_version": major_minor, "sys_platform": "linux"}


@pytest.fixture
def texts() -> dict[str, str]:
    files = {"pyproject": "pyproject.toml", "lock": "requirements.lock", "environment": "environment.yml"}
    return {key: (ROOT / name).read_text() for key, name in files.items()}


def test_pyproject_lock_and_environment_say_the_same(texts: dict[str, str]) -> None:
    assert disagreements(**texts) == []


@pytest.mark.parametrize(
    ("file", "before", "after", "told"),
    [
        ("environment", r"pyspark==\S+", "pyspark==4.1.0", "pyspark: environment.yml has 4.1.0"),
        ("environment", r" *- plotly==\S+\n", "", "plotly: environment.yml has None"),
        ("environment", r"openjdk=17", "openjdk=11", "openjdk: Spark needs 17"),
        ("environment", r"python=3\S+", "python=3.10", "python: pyproject wants >=3.11"),
        ("environment", r"( *- )plotly(==\S+\n)", r"\1plotly\2\1dask==1.0\n", "dask: in environment.yml, not in"),
        ("lock", r"(?m)^pandas==\S+", "pandas==3.0.0", "pandas: pyproject wants"),
        ("lock", r"(?m)^protobuf==\S+", "protobuf==6.33.6 ; python_full_version < '3.12'", "protobuf: pyproject wants"),
        ("pyproject", r'"pyarrow[^"]*"', '"pyarrow>=99"', "pyarrow: pyproject wants >=99"),
        ("pyproject", r'"tqdm[^"]*"', '"tqdm", "dask"', "dask: pyproject wants"),
    ],
)
def test_each_kind_of_disagreement_is_found(
    texts: dict[str, str], file: str, before: str, after: str, told: str
) -> None:
    texts[file], replaced = re.subn(before, after, texts[file], count=1)
    assert replaced == 1
    assert any(line.startswith(told) for line in disagreements(**texts)), disagreements(**texts)


def test_the_lock_pins_by_hash_and_names_no_host(texts: dict[str, str]) -> None:
    pins = [block for block in re.split(r"\n(?=[a-z0-9])", texts["lock"]) if re.match(r"[a-z0-9]", block)]
    assert len(pins) > 100
    assert [pin.split()[0] for pin in pins if "--hash=sha256:" not in pin] == []
    assert re.findall(r"\w+://\S+|--(?:extra-)?index-url|@ *file", texts["lock"]) == []


def test_make_alone_lists_every_target_with_its_purpose() -> None:
    makefile = (ROOT / "Makefile").read_text()
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = re.findall(r"^([a-z]+):", makefile, re.MULTILINE)
    assert set(targets) >= {"demo", "test", "lab", "bench", "faults", "lint", "lock", "clean"}
    assert re.findall(r"^  make ([a-z]+) +\S", listed, re.MULTILINE) == targets


def test_dir_shows_the_public_names_and_all_of_them_are_there() -> None:
    shown = {name for name in dir(workbench) if not (name.startswith("__") and name.endswith("__"))}
    assert shown == set(workbench.__all__)
    assert all(getattr(workbench, name) is not None for name in shown)
    assert {"__doc__", "__version__"} <= set(dir(workbench))


def test_importing_the_project_loads_neither_spark_nor_plotly_nor_widgets() -> None:
    heavy = "{'pyspark', 'plotly', 'ipywidgets', 'pandas', 'IPython'}"
    script = f"import workbench, sys; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_stored_without_outputs_and_equals_its_script(path: Path) -> None:
    jupytext = pytest.importorskip("jupytext")
    notebook = nbformat.read(path, as_version=4)
    ran = [cell for cell in notebook.cells if cell.cell_type == "code" and (cell.outputs or cell.execution_count)]
    assert ran == [], f"{path.name} holds outputs; run: nbstripout {path.relative_to(ROOT)}"
    script = path.with_suffix(".py")
    assert script.exists(), f"{path.name} has no script; run: jupytext --sync {path.relative_to(ROOT)}"
    assert _sources(notebook) == _sources(jupytext.read(script)), f"run: jupytext --sync {path.relative_to(ROOT)}"


def _sources(notebook: Any) -> list[tuple[str, str]]:
    return [(cell.cell_type, cell.source.strip()) for cell in notebook.cells]
