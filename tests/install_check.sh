#!/usr/bin/env bash
# Usage: tests/install_check.sh dist/xla_dynamo-*.whl
#
# Installs the wheel in an empty environment, as a user would, with what plain pip takes (gigabytes),
# and compiles a model there without importing xla_dynamo. `make wheel-check` runs it on demand;
# PYTHON names another interpreter, CONSTRAINT a file of versions.
set -euo pipefail
wheel=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export XLA_DYNAMO_CACHE_DIR="$folder/cache"

"${PYTHON:-python3}" -m venv venv
PIP_CONSTRAINT="${CONSTRAINT:-/dev/null}" venv/bin/python -m pip install --quiet "$wheel"
cat >check.py <<'PYTHON'
import sys

import torch

model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
x = torch.randn(3, 8)
compiled = torch.compile(model, backend="xla")
torch.testing.assert_close(compiled(x), model(x))
compiled(x).sum().backward()

xla_dynamo = sys.modules["xla_dynamo"]
assert "venv" in xla_dynamo.__file__, xla_dynamo.__file__
assert not xla_dynamo.counters(), xla_dynamo.counters()
for record in xla_dynamo.compiles():
    print(record)
PYTHON
venv/bin/python check.py
venv/bin/python -m xla_dynamo doctor
echo "install check passed: $(basename "$wheel")"
