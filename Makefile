# make check: the main job on this machine.  make test: every test.  Both first set up .venv if it is not there.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready

# A machine that already has a GPU build of torch (a ROCm or CUDA image) keeps it: the environment then sees the
# packages of that Python, be it a venv, conda or the system's, and only Ridgeline's own dependencies are added.
GPU_TORCH := $(shell $(PYTHON) -c 'import torch; print(torch.version.hip or torch.version.cuda or "")' 2>/dev/null)

# An installed Ridgeline takes one name; in the environment of a clone its rooms can be imported from any folder as well.
SEE_ROOMS = $(BIN)/python -c "import sysconfig; print('$(CURDIR)', file=open(sysconfig.get_path('purelib') + '/ridgeline_rooms.pth', 'w'))"

.PHONY: setup light lock check test lint golden bundle clean
setup: $(READY)

$(READY): pyproject.toml constraints-cpu.txt
ifeq ($(GPU_TORCH),)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints-cpu.txt -e '.[cpu,dev]'
else
	$(PYTHON) -m venv $(VENV)
	$(PYTHON) ci/see_packages.py $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@$(BIN)/python -c 'import torch, sys; found = torch.version.hip or torch.version.cuda; \
	  sys.exit(None if found == "$(GPU_TORCH)" else f"{sys.executable} sees torch {found}, not $(GPU_TORCH): {torch.__file__}")'
endif
	@$(SEE_ROOMS)
	@touch $@

check: setup
	$(BIN)/ridgeline check

# Three workers for two cores: some tests wait for a cluster or for a time limit.  They start some thousand processes of
# ours, which take three times as long where nothing is compiled (PYTHONDONTWRITEBYTECODE, as images of containers set it).
test: lint
	$(BIN)/python -m compileall -q -j 0 benchmarks ci dashboards kernels
	$(BIN)/python -m pytest -n 3 --dist worksteal

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The tests that compare with files in tests/golden.
GOLDEN := tests/ci/report tests/ci/executors tests/ci/pools tests/ci/test_doctor.py \
	tests/ci/isa/test_text.py tests/ci/isa/test_versions.py

golden: setup
	$(BIN)/python -m pytest $(GOLDEN) --update-golden

# The charts of the pages: Apache ECharts from the locked npm packages, as one script; commit what it writes.
bundle: dashboards/bundle/node_modules
	cd dashboards/bundle && npm run --silent build

dashboards/bundle/node_modules: dashboards/bundle/package-lock.json
	cd dashboards/bundle && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

# Ridgeline without torch and the development tools: enough to record, judge, render and post.  The jobs that hold a
# token install this: every file is checked against its hash in requirements.lock, and nothing is built but Ridgeline.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
light:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes --only-binary :all: -r requirements.lock
	$(PIP) --no-index --no-deps --no-build-isolation -e .
	@$(SEE_ROOMS)

# The lock file, after a change of the dependencies; needs uv (https://docs.astral.sh/uv/), on any platform and Python.
lock:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --extra locked \
	  --custom-compile-command "make lock" -c constraints-cpu.txt -o requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) .ridgeline site .mypy_cache .ruff_cache .pytest_cache
