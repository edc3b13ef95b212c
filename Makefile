# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
SOURCES := src tests benchmarks examples setup.py

.PHONY: setup demo test pytest test-gpu lint docs results page stress release clean

# One stamp for what a user needs, one for what a developer needs on top.
.venv/.core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/.dev: .venv/.core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

setup: .venv/.dev

demo: .venv/.core
	$(BIN)/algnn demo --out demo

lint: .venv/.dev
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

# The tests, and beside them lint, which uses one core only.
test: .venv/.dev
	$(MAKE) --no-print-directory --jobs=2 lint pytest

# A process for each core, each with one thread of its own; who is done first takes from the others.
pytest: .venv/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

# On a machine with a GPU learners take it, so the tests of all learners cover it there. With the
# Python that has a torch for that GPU, and no virtual environment.
test-gpu:
	PYTHONPATH=src $(PYTHON) -c "import torch; assert torch.cuda.is_available(), 'no GPU here'"
	PYTHONPATH=src $(PYTHON) -m pytest tests/analytic tests/test_learners.py

# The site, into site/: without a network, and a warning is an error.
docs: .venv/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site: site/index.html"

# Whatever in the documents comes from docs/records: tables, figures and pictures.
results: .venv/.core
	rm -rf docs/results
	$(BIN)/algnn report --records docs/records --markdown docs/results.md
	$(BIN)/python benchmarks/baselines.py docs/baselines.md docs/records
	$(BIN)/python benchmarks/ablation.py
	$(BIN)/python benchmarks/life.py document
	$(BIN)/python benchmarks/readme.py

# The page of the same records as the README shows it; needs Chromium.
page: .venv/.core
	$(BIN)/python benchmarks/page.py

# A year in ten minutes: threads, kills, flipped bits, commands sent twice (docs/reliability.md);
# then ten thousand damaged files and ten thousand odd inputs, of which the tests try a thousand.
STRESS ?= 600
stress: .venv/.dev
	$(BIN)/python benchmarks/stress.py --seconds $(STRESS)
	ALGNN_FUZZ=10000 $(BIN)/python -m pytest tests/test_fuzz.py tests/test_inputs.py

# What to publish, checked, into dist/. Before: the version in pyproject.toml, src/algnn/__init__.py and
# CITATION.cff; its date in CHANGELOG.md; OWNER in pyproject.toml, README.md, CITATION.cff and
# mkdocs.yml; `make test results docs`; golden files (CONTRIBUTING.md). After: tag v<version>, upload
# dist/* with twine, publish site/.
release: .venv/.dev
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

clean:
	rm -rf .venv demo dist build site
