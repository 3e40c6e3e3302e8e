# All set-up is here: Python and make are enough. `make` lists the targets.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
# The number of mutants or combinations to draw, and the seed.
N ?= 100
SEED ?= 0

BIN := $(VENV)/bin
SITE := docs/_build/html
NOTEBOOKS := $(wildcard notebooks/*.py)
RUNS := $(NOTEBOOKS:notebooks/%.py=run-%)
# Other versions of Keras alone, in folders; the rest is that of the environment. The
# oldest is the floor in pyproject.toml.
OLDEST_KERAS := $(CURDIR)/build/keras-oldest
FLOOR = $$(sed -n 's/.*"keras>=\([0-9.]*\).*/\1/p' pyproject.toml)
SPEC_oldest = keras==$(FLOOR)
SPEC_newest = keras
# For `make test-one`: the backend, and the version of Keras (oldest, newest, or the
# pinned one).
BACKEND ?= torch
KERAS ?=
TESTS_oldest := tests/test_keras.py tests/gates/test_contract.py \
    tests/models/test_task_losses.py tests/gates/test_golden.py::test_training_follows_the_release

# Say less about devices that are not there, and say things in order.
export TF_CPP_MIN_LOG_LEVEL ?= 2
export PYTHONUNBUFFERED ?= 1
# Python keeps what it has compiled. Without, each of many processes compiles TensorFlow,
# JAX or torch again, and an import takes 15 seconds instead of 5.
unexport PYTHONDONTWRITEBYTECODE
# pip reads these for the isolated build of the package itself.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# What a target installs: extras of the package. Each has a stamp file in
# the environment, so that nothing is installed twice.
EXTRAS_demo := tensorflow,plots
EXTRAS_test := tensorflow,data,plots,tables,postgresql,dev
EXTRAS_backends := jax,torch
# A backend alone.
EXTRAS_tensorflow := tensorflow,data,plots,tables,tune,dev
EXTRAS_jax := jax,data,plots,tables,tune,dev
EXTRAS_torch := torch,data,plots,tables,tune,dev
EXTRAS_release := dev
EXTRAS_docs := tensorflow,notebooks,docs
# All of them at once take one run of pip, not four.
SETS := demo test backends docs
comma := ,
EXTRAS_all := $(subst $() ,$(comma),$(foreach set,$(SETS),$(EXTRAS_$(set))))

HAS_BROWSER := command -v chromium >/dev/null && command -v chromedriver >/dev/null
HAS_POSTGRESQL := ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1

PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
# Tests whose result depends on the backend. Torch runs the others, too.
DEPENDENT := -m "not backend_independent or every_backend or backends"

.DEFAULT_GOAL := help
# Two installations in one environment would disturb each other. After `make environment`
# there are none, and `make -j 2 PARALLEL=1` is safe.
ifndef PARALLEL
.NOTPARALLEL:
endif
.SECONDARY:
.PHONY: help system-packages environment demo test test-one test-backends test-unpatched test-xla test-mutants test-oldest-keras test-differential reproduce benchmark-check check notebooks notebooks-check $(RUNS) docs docs-check browser postgresql release-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' Makefile

# Only this target installs packages of the system. Others say what is missing.
system-packages: ## install a browser and PostgreSQL (Debian or Ubuntu, as root)
	@if [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null \
	    && ! { $(HAS_BROWSER) && $(HAS_POSTGRESQL); }; then \
	    export DEBIAN_FRONTEND=noninteractive; \
	    apt-get update -qq; \
	    apt-get install -qq -y --no-install-recommends \
	        chromium chromium-driver fonts-dejavu-core; \
	    apt-get install -qq -y --no-install-recommends postgresql || true; \
	fi
	@$(MAKE) --no-print-directory browser postgresql

environment: $(VENV)/.all $(OLDEST_KERAS)/.installed ## install the Python packages of all targets
	touch $(SETS:%=$(VENV)/.%)

demo: $(VENV)/.demo ## train four models, and draw their errors and costs (DEMO=--all: fifteen)
	$(BIN)/python scripts/demo.py $(DEMO)

test: $(VENV)/.test ## all tests that depend on the backend, on TensorFlow
	KERAS_BACKEND=tensorflow $(PYTEST) $(DEPENDENT)

test-one: $(VENV)/.$(BACKEND) $(if $(KERAS),build/keras-$(KERAS)/.installed) ## tests on one backend, BACKEND=torch, which is installed alone
	$(if $(KERAS),PYTHONPATH=$(CURDIR)/build/keras-$(KERAS)) KERAS_BACKEND=$(BACKEND) $(PYTEST) \
	    $(if $(filter torch,$(BACKEND)),,$(DEPENDENT)) $(TESTS_$(KERAS))

test-backends: $(VENV)/.test $(VENV)/.backends postgresql ## all tests on torch, and those that depend on the backend on JAX
	KERAS_BACKEND=jax $(PYTEST) $(DEPENDENT)
	KERAS_BACKEND=torch $(PYTEST)

test-unpatched: $(VENV)/.test $(VENV)/.backends ## all tests as users run the backends, without what saves time
	DSELECTK_UNPATCHED=1 KERAS_BACKEND=tensorflow $(PYTEST) $(DEPENDENT)
	DSELECTK_UNPATCHED=1 KERAS_BACKEND=jax $(PYTEST) $(DEPENDENT)
	DSELECTK_UNPATCHED=1 KERAS_BACKEND=torch $(PYTEST)

test-xla: $(VENV)/.test ## tests of the layers, compiled by XLA as TensorFlow does with a GPU
	DSELECTK_XLA=1 KERAS_BACKEND=tensorflow $(PYTEST) tests/gates tests/layers tests/experts \
	    tests/models tests/baselines tests/callbacks

test-mutants: $(VENV)/.test $(VENV)/.backends ## change N=100 expressions, and list the changes that no test sees
	$(BIN)/python tests/mutants.py -N $(N) --seed $(SEED)

test-oldest-keras: $(VENV)/.test $(VENV)/.backends $(OLDEST_KERAS)/.installed ## some tests, on the oldest Keras
	@PYTHONPATH=$(OLDEST_KERAS) KERAS_BACKEND=torch $(BIN)/python -c \
	    'import importlib.metadata as m; print("Keras", m.version("keras"))'
	PYTHONPATH=$(OLDEST_KERAS) KERAS_BACKEND=torch $(PYTEST) $(TESTS_oldest)

test-differential: $(VENV)/.test $(VENV)/.backends ## draw N=100 combinations of features, and judge each on KERAS_BACKEND
	cd tests && PYTHONPATH=$(CURDIR):$(CURDIR)/tests KERAS_BACKEND=$(or $(KERAS_BACKEND),torch) \
	    $(abspath $(BIN))/python -m differential.run $(N) $(SEED)

reproduce: $(VENV)/.test ## run every experiment of the papers, in small, into build/smoke
	$(BIN)/python scripts/reproduce.py --preset smoke

benchmark-check: $(VENV)/.test $(VENV)/.backends ## see that all forms agree
	$(BIN)/python scripts/benchmark.py --quick

check: $(VENV)/.test ## lint, format, levels of modules and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/pyright --pythonpath $(BIN)/python

notebooks: $(VENV)/.docs ## run the notebooks and keep their output in the tree
	$(MAKE) $(RUNS)

notebooks-check: $(VENV)/.docs ## run short versions of the notebooks, outside of the tree
	$(BIN)/python scripts/tools/quick_notebooks.py

docs: $(VENV)/.docs ## build the site in docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -b html docs $(SITE)

docs-check: browser docs $(VENV)/.test ## build the site and read it in a browser
	DOCS_SITE=$(SITE) KERAS_BACKEND=tensorflow $(BIN)/python -m pytest tests/docs/test_site.py

browser: # say so if the browser is missing, which docs-check needs
	@$(HAS_BROWSER) || { echo "Chromium and chromedriver are not installed:" \
	    "run 'make system-packages' as root (Debian or Ubuntu)." >&2; exit 1; }

postgresql: # say so if PostgreSQL is missing
	@$(HAS_POSTGRESQL) || echo "PostgreSQL is not installed, and its tests are skipped:" \
	    "run 'make system-packages' as root (Debian or Ubuntu)."

release-check: $(VENV)/.release ## build the packages, check them, and run the README's example with the wheel
	$(BIN)/python scripts/tools/release_check.py $(if $(TAG),--tag $(TAG))

clean: ## remove what the targets made, the environment included
	rm -rf $(VENV) build dist docs/_build docs/notebooks
	rm -rf .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The pip that comes with Python may be old, and take twice as long to install it all.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade -c constraints.txt pip

$(VENV)/.%: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt \
	    -e ".[$(EXTRAS_$*)]"
	touch $@

# What pins Keras does not count here.
$(CURDIR)/build/keras-%/.installed build/keras-%/.installed: pyproject.toml | $(BIN)/python
	rm -rf build/keras-$*
	PIP_CONSTRAINT= $(BIN)/python -m pip install --quiet --no-deps \
	    --target build/keras-$* "$(SPEC_$*)"
	touch $@

# What TensorFlow's C++ says about devices stays out of the output, and so does what
# differs from run to run.
NBCONVERT := $(BIN)/jupyter-nbconvert --to notebook --inplace --execute \
    --log-level WARN \
    --ExecutePreprocessor.kernel_name=python3 \
    --ExecutePreprocessor.timeout=1200 \
    --ExecutePreprocessor.record_timing=False \
    --ExecutePreprocessor.extra_arguments=--IPKernelApp.capture_fd_output=False

# A notebooks/*.py becomes a notebook with output.
$(RUNS): run-%: notebooks/%.py
	@echo "running $<"
	@$(BIN)/jupytext --quiet --update --to ipynb $<
	@$(NBCONVERT) notebooks/$*.ipynb
