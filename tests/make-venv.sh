#!/bin/bash
# Makes a virtual environment with the first Python from 3.11 on that really runs (a pyenv shim may not).
# 3.11 comes first: the pictures of the snapshot tests have their origin there. usage: make-venv.sh DIR
set -euo pipefail
for name in ${PYTHON:-python3.11 python3.12 python3.13 python3 python}; do
  if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "making $1 with $("$name" -c 'import sys; print(sys.executable)')"
    exec "$name" -m venv --clear "$1"
  fi
done
echo "no Python 3.11 or newer with venv runs here; install one (Debian: python3 python3-venv), or name it:" \
  "make PYTHON=/path/to/python3.12 ..." >&2
exit 1
