# Every target makes .venv by itself; a second run installs nothing.
#
#   make demo     train a digits classifier on XLA          make lint         ruff and pyright
#   make test     all tests; ARGS="-k digits" picks some    make wheel        sdist and wheel in dist/, checked
#   make spine    those of a minute, for the inner loop     make wheel-check  that wheel, in an empty venv
#   make release  the same of a tagged commit, and what to do with it
#   make colab-check  the wheel beside what a Colab or Kaggle TPU notebook has installed
#   make docs     the documentation as a site, site/index.html; strict
#   make bench    benchmarks; they rewrite docs/benchmarks.md, docs/speed.md and README's table
#   make operators   the whole operator sweep (hours; see CONTRIBUTING.md); rewrites docs/operators.md
#   make matrix   fresh environments with other versions of Python, torch and jax; writes docs/versions.md
#   make ecosystem   programs of transformers, diffusers, lightning, ... against eager, in .venv-ecosystem
#   make notebook   execute examples/start_here.ipynb in a fresh kernel, and write its outputs
#   make browser  the page of a report in headless Chromium, which has to be there; writes docs/report.png
#   make fuzz     1000 random programs against eager, through both doors; failures go to fuzz/

PYTHON ?= python3
# Tests start many processes: each would compile all modules again.
export PYTHONDONTWRITEBYTECODE =
COLAB_PYTHON ?= python3.12
BIN := .venv/bin
ARGS ?=

.PHONY: browser demo test spine lint docs bench operators fuzz matrix notebook ecosystem wheel wheel-check colab-check release
.SUFFIXES:

demo: .venv/.demo
	$(BIN)/python examples/digits.py $(ARGS)

test: .venv/.test
	$(BIN)/python -m pytest -n 2 --dist worksteal --max-worker-restart 0 $(ARGS)

spine: .venv/.test
	$(BIN)/python -m pytest -q -m spine tests/backend tests/test_mirror.py $(ARGS)

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# A link or an anchor that leads nowhere, and a page that is in no menu, are errors.
docs: .venv/.docs
	rm -rf site
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -c docs/site . site

bench: .venv/.bench
	$(BIN)/python -m benchmarks $(ARGS)

operators: .venv/.test
	$(BIN)/python -m tests.operators --out operators.jsonl $(ARGS)
	$(BIN)/python -m tests.operators --door lazy --out operators_lazy.jsonl $(ARGS)
	$(BIN)/python -m tests.operators --door bucket --dtypes float32 --out operators_bucket.jsonl $(ARGS)
	$(BIN)/python -m tests.operators --door batch --dtypes float32 --out operators_batch.jsonl $(ARGS)
	$(BIN)/python -m tests.operators --door tpu --dtypes float32 --out operators_tpu.jsonl $(ARGS)
	$(BIN)/python -m tests.operators --door tpu --dtypes bfloat16 --directions forward --out operators_tpu16.jsonl $(ARGS)
	$(BIN)/python -m tests.operators --merge operators*.jsonl

# Of a run that compiles everything: its own cache of programs is empty.
browser: .venv/.test
	XLA_DYNAMO_CACHE_DIR=0 $(BIN)/python -W ignore -m tests.browser --screenshot $(ARGS)

fuzz: .venv/.test
	$(BIN)/python -W ignore -m tests.fuzz $(ARGS)

# torchvision's wheel asks for CUDA's libraries: CONTRIBUTING.md says how it gets by.
ECOSYSTEM := .venv-ecosystem
ecosystem: $(ECOSYSTEM)/.made
	LD_LIBRARY_PATH=$(ECOSYSTEM)/without-cuda $(ECOSYSTEM)/bin/python -m tests.ecosystem $(ARGS)

$(ECOSYSTEM)/.made: tests/ecosystem/requirements.txt constraints.txt
	$(PYTHON) -m venv $(ECOSYSTEM)
	$(ECOSYSTEM)/bin/pip install --quiet -c constraints.txt -r $< --editable .
	$(ECOSYSTEM)/bin/pip install --quiet --no-deps torchvision==0.28.0
	$(ECOSYSTEM)/bin/python -m tests.ecosystem.without_cuda $(ECOSYSTEM)/without-cuda
	touch $@

notebook: .venv/.test
	$(BIN)/python -m tests.notebooks.execute examples/*.ipynb $(ARGS)

matrix: .venv/.test
	$(BIN)/python -m tests.matrix $(ARGS)

# The wheel is built from the sdist, so that both hold all that is needed.
wheel: .venv/.release
	rm -rf build dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

wheel-check: wheel
	tests/install_check.sh dist/*.whl

colab-check: wheel
	PYTHON=$(COLAB_PYTHON) tests/install_check.sh dist/*.whl torch==2.9.0 torch_xla==2.9.0 \
		jax==0.7.2 jaxlib==0.7.2 transformers accelerate diffusers

release: wheel-check
	@! ls dist | grep -E 'dev|[+]' || { echo "this commit has no tag of its own, or is changed"; exit 1; }
	@echo "To publish: git push origin $$(git describe --tags), and twine upload dist/*"

$(BIN)/python:
	$(PYTHON) -m venv .venv

# One stamp for each extra of pyproject.toml; constraints.txt keeps pip from picking another torch.
# Python compiles what is imported; pip would compile the rest as well.
.venv/.%: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[$*]"
	touch $@
