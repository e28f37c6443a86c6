# make check: the main job on this machine.  make test: the fast tests; make test-slow: the slow ones; make test-pr: both in
# one go, as a pull request has them; make test-nightly: all others.  Each first sets up .venv if it is not there; where that needs torch,
# ci/set_up.py finds a build, in TORCH_INDEX if it names an index.
PYTHON ?= python3
export TORCH_INDEX
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready
TOOLS  := $(VENV)/tools

# Of 87 s that everything took on 2 cores, the tools of the tests were 25 s and compiling 40,000 modules 20 s (2026-11-23): the
# main job has neither, and only the modules that it imports are compiled.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
SET_UP := $(BIN)/python ci/set_up.py
USED := torch, torch.distributed, triton, pandas, scipy.stats, matplotlib.pyplot, pyarrow, asv.config

# A machine that already has a GPU build of torch (a ROCm or CUDA image) keeps it: the environment then sees the
# packages of that Python, be it a venv, conda or the system's, and only Ridgeline's own dependencies are added.
# It builds with a setuptools of its own (pyproject.toml): in pip's isolated environment the image's would come first.
# An image's constraints (NVIDIA's set PIP_CONSTRAINT) hold for its packages, not for what builds ours.
GPU_TORCH := $(shell $(PYTHON) -c 'import torch; print(torch.version.hip or torch.version.cuda or "")' 2>/dev/null)

OWN_BUILD := env -u PIP_CONSTRAINT -u PIP_BUILD_CONSTRAINT
ifeq ($(GPU_TORCH),)
PIP := $(OWN_BUILD) $(PIP)
SET_UP := $(OWN_BUILD) $(SET_UP)
endif

# An installed Ridgeline takes one name; in the environment of a clone its rooms can be imported from any folder as well.
SEE_ROOMS = $(BIN)/python -c "import sysconfig; print('$(CURDIR)', file=open(sysconfig.get_path('purelib') + '/ridgeline_rooms.pth', 'w'))"

.PHONY: setup tools light lock check test test-slow test-pr test-nightly compiled lint golden bundle pictures clean
setup: $(READY)
tools: $(TOOLS)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) ci/set_up.py
	$(PYTHON) -m venv $(VENV)
ifeq ($(GPU_TORCH),)
	@$(SET_UP) install -c constraints.txt -e '.[cpu]'
else
	@$(SET_UP) reach
	$(PYTHON) ci/set_up.py see $(VENV)
	$(OWN_BUILD) $(PIP) 'setuptools>=77'
	$(PIP) --no-build-isolation -e .
	@$(BIN)/python -c 'import torch, sys; found = torch.version.hip or torch.version.cuda; \
	  sys.exit(None if found == "$(GPU_TORCH)" else f"{sys.executable} sees torch {found}, not $(GPU_TORCH): {torch.__file__}")'
endif
	@$(SEE_ROOMS)
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -c 'import $(USED)'
	@touch $@

$(TOOLS): $(READY)
	$(PIP) $(if $(GPU_TORCH),--no-build-isolation,-c constraints.txt) -e '.[dev]'
	@touch $@

check: setup
	$(BIN)/ridgeline check

# They start some thousand processes of ours, which take three times as long where nothing is compiled
# (PYTHONDONTWRITEBYTECODE, as images of containers set it); pytest too keeps what it makes of 300 files of tests: 10 of
# the 18 s of CPU that each worker takes to collect them.
# Their own calls of make are none of this one's jobs.
PYTEST := env -u PYTHONDONTWRITEBYTECODE -u MAKEFLAGS -u MFLAGS -u MAKELEVEL $(BIN)/python -m pytest

# The fast tests work all the time, so two workers for two cores: a third would collect them once more.
test: lint compiled
	$(PYTEST) -m "not slow and not nightly" -n 2 --dist worksteal

# The slow ones wait for processes, a cluster or a time limit, and the fast ones fill what they leave: in one go, so that
# each worker collects once.  What pytest makes of the files takes half of that: the first line does it for all of them.
# Those that share what takes long to make are a group (pytest.mark.xdist_group), of one worker.
test-pr: compiled
	$(PYTEST) --collect-only -qq >/dev/null || true  # what cannot be collected the next line says
	$(PYTEST) -m "not nightly" -n 4 --dist loadgroup

test-slow: compiled
	$(PYTEST) -m "slow and not nightly" -n 4 --dist loadgroup

# Grids, studies and whole set-ups; with SINCE=COMMIT those that a change since then can reach (tests/reached.py).
test-nightly: compiled
	$(PYTEST) -m nightly -n 4 --dist loadgroup $(if $(SINCE),--since $(SINCE))

# What many tests would each be the first to do: compile our modules, and read all records into their cache (5.5 s of CPU).
compiled: tools
	$(BIN)/python -m compileall -q -j 0 benchmarks ci dashboards kernels
	$(BIN)/python -c 'import pathlib; from ci.records import store; store.load(pathlib.Path("results"))'

# mypy from nothing takes 49 s alone and 32 s with two workers, on two cores (mypy 2.4; an older one has none).  On a busy
# machine its workers may not start in time: it then ends with 2, where a wrong type is 1, and does it alone.
lint: tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	MYPY_NUM_WORKERS=2 $(BIN)/mypy || { [ $$? = 2 ] && $(BIN)/mypy; }

# The tests that compare with files in tests/golden.
GOLDEN := tests/ci/report tests/ci/pools tests/ci/test_doctor.py tests/ci/isa/test_text.py tests/ci/slurm/test_text.py \
	tests/ci/commands/test_jobs.py tests/ci/sweeps/test_tuned.py

golden: tools
	$(BIN)/python -m pytest $(GOLDEN) --update-golden

# The pictures: of the README a verdict on a terminal and the front page, of ARCHITECTURE the rooms; needs Chromium.
# Commit what it writes.
pictures: setup
	$(BIN)/ridgeline site
	$(BIN)/python -m tests.study.pictures .github/pictures
	$(BIN)/python -m tests.study.house .github/pictures/house.svg

# The charts of the pages: Apache ECharts from the locked npm packages, as one script; commit what it writes.
bundle: dashboards/bundle/node_modules
	cd dashboards/bundle && npm run --silent build

dashboards/bundle/node_modules: dashboards/bundle/package-lock.json
	cd dashboards/bundle && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

# Ridgeline without torch and the development tools: enough to record, judge, render and post.  The jobs that hold a
# token install this: every file is checked against its hash in requirements.lock, and nothing is built but Ridgeline.
light:
	@$(PYTHON) ci/set_up.py
	$(PYTHON) -m venv $(VENV)
	@$(SET_UP) reach
	$(PIP) --require-hashes --only-binary :all: -r requirements.lock
	$(PIP) --no-index --no-deps --no-build-isolation -e .
	@$(SEE_ROOMS)

# The versions of every set-up and, of `make light`, their hashes, after a change of the dependencies; for all Pythons
# and platforms.  torch and Triton are left to the range of the extra `cpu`.
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-annotate --custom-compile-command "make lock"
lock: tools
	$(LOCK) --extra dev --extra locked -o constraints.txt pyproject.toml
	$(LOCK) --extra locked --generate-hashes -c constraints.txt -o requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) .ridgeline site .mypy_cache .ruff_cache .pytest_cache
