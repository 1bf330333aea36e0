#!/usr/bin/env bash
# Prepares everything `make` needs: a Python with venv, .venv with the locked packages, and Java 17 or newer.
# Does nothing, and says nothing, when all is there. PYTHON=… chooses the interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }
fail() { say "setup: $*"; exit 1; }
may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
apt_install() {
  say "setup: installing $* with apt"
  mkdir -p var
  { DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } >var/apt.log 2>&1 ||
    { tail -n 5 var/apt.log >&2; fail "apt could not install $*; the whole story is in var/apt.log."; }
}

fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
has_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

# The newest Python that fits; one that can already make environments goes before one that can not.
choose_python() {
  local name found=
  for name in ${PYTHON:-python3.13 python3.12 python3.11 python3}; do
    fits "$name" || continue
    if has_venv "$name"; then echo "$name"; return; fi
    found=${found:-$name}
  done
  echo "$found"
}

make_venv() {
  local python version
  python=$(choose_python)
  [ -n "$python" ] || fail "Python 3.11 or newer is needed; ${PYTHON:-python3} is $("${PYTHON:-python3}" --version 2>&1 | head -n 1 || true). Install python3.11 and python3.11-venv, or name another one with PYTHON=…"
  if ! has_venv "$python"; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    may_install || fail "this Python can not make environments; install python$version-venv (Debian, Ubuntu) and try again."
    apt_install "python$version-venv"
    has_venv "$python" || fail "$python still can not make environments after python$version-venv was installed."
  fi
  rm -rf .venv
  "$python" -m venv .venv
}

# pip names each package as it starts on it: that is the progress shown.
install_packages() {
  local total pip=(.venv/bin/python -m pip --disable-pip-version-check --no-input)
  total=$(grep -c '^[a-z0-9].*==' requirements.lock)
  mkdir -p var
  say "setup: installing up to $total locked packages into .venv (a few minutes the first time)"
  # PySpark comes as source; its build needs the locked setuptools and nothing from outside the lock.
  awk '/^[a-zA-Z0-9]/ { keep = /^setuptools==/ } keep' requirements.lock >var/setuptools.lock
  "${pip[@]}" install -q --no-deps --require-hashes -r var/setuptools.lock
  "${pip[@]}" install --no-deps --no-compile --no-build-isolation --require-hashes -r requirements.lock 2>&1 | tee var/pip.log |
    awk '/^Collecting / { n++; if (n % 20 == 0) { print "setup:   " n " packages fetched"; fflush() } }
         /^Installing collected/ { print "setup:   unpacking"; fflush() }
         /^ *ERROR|^error/ { print; fflush() }' >&2 ||
    fail "pip could not install the locked packages; the whole story is in var/pip.log."
  "${pip[@]}" install -q --no-deps --no-index --no-build-isolation -e .
  "${pip[@]}" check >var/pip-check.log || { cat var/pip-check.log >&2; fail "the locked packages do not fit together."; }
  # Every Python worker of Spark imports pandas: without bytecode on disk each one would compile it again.
  say "setup:   compiling bytecode"
  env -u PYTHONDONTWRITEBYTECODE -u PYTHONPYCACHEPREFIX PYTHONWARNINGS=ignore .venv/bin/python -m compileall -qq -j 0 .venv/lib || true
  .venv/bin/python - <<'CHECK' || fail "bytecode could not be written into .venv; is the disk full?"
import importlib.util, os, sys
sys.exit(any(not os.path.exists(importlib.util.find_spec(name).cached) for name in ("pandas", "pyarrow", "pyspark")))
CHECK
}

find_java() { .venv/bin/python -P workbench/session/java.py; }

need_java() {
  local java
  if java=$(find_java 2>/dev/null); then echo "$java" >.venv/.java; return; fi
  may_install || fail "Java 17 or newer is needed; install openjdk-17-jre-headless (Debian, Ubuntu), or openjdk from conda, and set JAVA_HOME if it is in an unusual place."
  apt_install "$(java_package)"
  java=$(find_java) || fail "no Java 17 or newer was found after apt installed one."
  echo "$java" >.venv/.java
}

java_package() {
  apt-get update -qq >/dev/null 2>&1 || true
  if apt-cache show openjdk-17-jre-headless >/dev/null 2>&1; then echo openjdk-17-jre-headless; else echo default-jre-headless; fi
}

# Sessions start twice as fast from an archive of Spark's classes. Without one all works, so a failure is told, not fatal.
make_archive() {
  say "setup:   preparing Spark's classes for fast starts"
  .venv/bin/python -c 'from workbench.session.archive import make_archive; make_archive()' >var/archive.log 2>&1 ||
    say "setup: that failed (var/archive.log says why); sessions will start more slowly."
}

stamp=.venv/.installed-$(cat requirements.lock tools/setup.sh | cksum | tr -d ' ')
if [ ! -e "$stamp" ] || ! .venv/bin/python -c '' 2>/dev/null; then
  make_venv
  install_packages
  touch "$stamp"
fi
{ [ -e .venv/.java ] && [ -x "$(cat .venv/.java)/bin/java" ]; } || { need_java; make_archive; }
