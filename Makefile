# make demo      the main job on the embedded demo (no GPU, no account)
# make test      all tests, in two processes
# make check     formatting, lint and types
# make coverage  the tests with the lines they reach; a table of what they miss, and coverage.xml
# make docs      the documentation site, in build/site (open build/site/index.html)
# make audit     known vulnerabilities of the pinned packages, where their list can be reached
# Each makes its own .venv the first time (a few minutes and 6 to 8 GB, most of it torch).

BIN := .venv/bin
SCRIPTS := $(patsubst benchmarks/%.py,-m %,$(wildcard benchmarks/*.py))
INSTALLED := .venv/.installed
TESTING := .venv/.testing
DOCUMENTING := .venv/.documenting
SUPPORTED := -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null
FIND_PYTHON := for p in python3 python3.13 python3.12 python3.11; do $$p $(SUPPORTED) && echo $$p && break; done
PYTHON ?= $(shell $(FIND_PYTHON))

.PHONY: demo test coverage check docs audit clean

$(INSTALLED): pyproject.toml setup.py constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11, 3.12 or 3.13 is needed; none was found (set PYTHON=...)."; exit 1; }
	@$(PYTHON) $(SUPPORTED) || { echo "Python 3.11, 3.12 or 3.13 is needed; $(PYTHON) is none (set PYTHON=...)."; exit 1; }
	@echo "Installing into .venv: a few minutes and 6 to 8 GB, most of it torch."
	@echo "First the environment and a new pip. Then pip names every package; after its last download it works silently for a minute."
	$(PYTHON) -m venv --upgrade-deps .venv
	$(BIN)/python -m pip install --constraint constraints.txt --editable '.[cpu,export]'
	@touch $@

$(TESTING): $(INSTALLED)
	@echo "Installing into .venv what the tests need: a minute or two."
	$(BIN)/python -m pip install --constraint constraints.txt --editable '.[cpu,export,scale,dev]'
	@touch $@

$(DOCUMENTING): $(INSTALLED)
	$(BIN)/python -m pip install --constraint constraints.txt --editable '.[cpu,export,docs]'
	@touch $@

demo: $(INSTALLED)
	$(BIN)/xbench-export --model kad --checkpoint demo/kad-demo.pt --tokenizer demo/tokenizer \
		--prompts demo/prompts.yaml --out demo/out/bundles --force
	$(BIN)/xbench-fast demo --out demo

# Two processes, a file of tests at a time: the quick ones first, then the folders with long files (tests/conftest.py).
test: $(TESTING)
	$(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder

# Loops that numba compiles are left out: Python does not run their lines.
coverage: $(TESTING)
	$(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder --cov --cov-report=term --cov-report=xml

check: $(TESTING)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@rm -rf .typecheck/xbench_fast .typecheck/*.py && mkdir -p .typecheck/xbench_fast
	@for file in api/*.py api/py.typed; do ln -s ../../$$file .typecheck/xbench_fast/; done
	@for room in demo engines export metrics_gpu runtime; do ln -s ../../$$room .typecheck/xbench_fast/$$room; done
	@for file in benchmarks/*.py; do ln -s ../$$file .typecheck/; done
	cd .typecheck && MYPYPATH=. ../$(BIN)/mypy --config-file ../pyproject.toml -p xbench_fast $(SCRIPTS)

# Offline; a warning, e.g. of a link without target, is an error.
docs: $(DOCUMENTING)
	@rm -rf build/site
	$(BIN)/python -m sphinx --fail-on-warning --keep-going -d build/site-cache -c docs/site . build/site
	@echo "The site is build/site/index.html."

audit: $(TESTING)
	$(BIN)/python .ci/audit.py

clean:
	rm -rf .venv .typecheck build demo/out *.egg-info
