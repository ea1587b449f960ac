#!/usr/bin/env bash
# Usage: tests/install_check.sh dist/xla_dynamo-*.whl [package==version ...]
#
# Installs the wheel as a user would, without any file of constraints, and runs both ways in. The
# environment is empty, so that plain pip chooses all versions (gigabytes); or it has the packages
# named, as a notebook service's has, and they must stay as they were. `make wheel-check` and
# `make colab-check` run it on demand; PYTHON names another interpreter.
set -euo pipefail
wheel=$(realpath "$1")
programs=$(realpath "$(dirname "$0")/install_check")
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export XLA_DYNAMO_CACHE_DIR="$folder/cache" PIP_CONSTRAINT=/dev/null

"${PYTHON:-python3}" -m venv venv
[ $# -eq 0 ] || venv/bin/python -m pip install --quiet "$@"
venv/bin/python -m pip freeze --all >before
venv/bin/python -m pip install --quiet "$wheel"
venv/bin/python -m pip freeze --all >after
# Plain pip may renew what venv itself brought: torch asks for a newer setuptools than Python 3.11's.
if [ $# -gt 0 ] && [ -n "$(comm -23 <(sort before) <(sort after))" ]; then
    echo "installing the wheel changed:"
    diff before after
    exit 1
fi
venv/bin/python "$programs/compile.py"
venv/bin/python -m xla_dynamo run "$programs/legacy.py"
case " $* " in *" accelerate"*) venv/bin/python -m xla_dynamo run "$programs/libraries.py" ;; esac
venv/bin/python -m xla_dynamo doctor
echo "install check passed: $(basename "$wheel")"
