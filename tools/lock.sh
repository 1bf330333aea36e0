#!/usr/bin/env bash
# Writes requirements.lock anew from pyproject.toml, for every Python from 3.11 on. Pins that still fit are kept;
# `tools/lock.sh --upgrade` moves them all.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=var/lock
[ -x $scratch/bin/uv ] || { python3 -m venv $scratch && $scratch/bin/python -m pip install -q uv; }
UV_CUSTOM_COMPILE_COMMAND="make lock" $scratch/bin/uv pip compile pyproject.toml --universal --all-extras \
  --generate-hashes --quiet --output-file requirements.lock "$@"
