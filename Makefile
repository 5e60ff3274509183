# One entry point for people and for CI. Every target but `clean` installs what is missing first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest

.PHONY: install up test check unit integration sim compat console console-scale spark spark-long long crash fuzz bench lock clean

install: $(STAMP)

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Ottla needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.5'

# The lock is uv's, in the requirements format, which names packages and hashes but no registry.
$(STAMP): pyproject.toml requirements.lock | $(BIN)/uv
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -e .
	@$(BIN)/python -m compileall -q src
	@touch $@

# A broker here and now, orders, and a live pipeline on Spark that totals them. Ctrl-C stops it.
up: $(STAMP)
	@tools/install_system.sh java:default-jre-headless
	@$(BIN)/ottla up --demo

# What CI runs.
test: check unit sim integration compat console spark

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_seam.py
	$(BIN)/python tools/generate_config_docs.py --check
	$(BIN)/python tools/generate_protocol_docs.py --check
	$(BIN)/python -m compat.page --check

unit: $(STAMP)
	$(PYTEST) -n 2 tests/unit

# Power cuts and seeded simulations: a few seeds here, OTTLA_SEEDS more in the long run.
sim: $(STAMP)
	$(PYTEST) -n 2 tests/sim

# Real processes and sockets; clients whose histories are judged while the broker is killed.
integration: $(STAMP)
	$(PYTEST) -n 2 --dist loadfile tests/integration
	$(PYTEST) -n 2 --dist load --maxschedchunk 1 tests/exactly_once

# Every page of the console in a browser, against a real broker.
console: $(STAMP)
	@tools/install_system.sh chromium:chromium
	$(PYTEST) tests/console

# Two thousand topics, five hundred groups, a live tail: by hand, on a machine with nothing else to do.
console-scale: $(STAMP)
	@tools/install_system.sh chromium:chromium
	PYTHONPATH=.:tests/console $(BIN)/python tests/console/measure.py

# Local Spark and real brokers; processes of both are killed at every step of the sink's protocol.
spark: $(STAMP)
	@tools/install_system.sh java:default-jre-headless
	$(PYTEST) --timeout 600 -m 'not long' tests/spark

# The same for longer: more kills, a Spark cluster, Spark's own connector beside ours, Apache Kafka's broker.
spark-long: $(STAMP)
	@tools/install_system.sh java:default-jre-headless
	OTTLA_SINK_SEEDS=50 OTTLA_SINK_DRIVER_KILLS=24 $(PYTEST) --timeout 7200 tests/spark
	OTTLA_SPARK_BROKER=kafka $(PYTEST) --timeout 7200 tests/spark

# Other people's clients and Apache Kafka's own tools; skipped, by name, where a toolchain is missing.
compat: $(STAMP)
	@tools/install_system.sh kcat:kcat
	$(PYTEST) -n 2 --dist loadfile compat

# The same for hours: simulations from thousands of seeds, twenty minutes of histories, Spark killed at every step.
long: $(STAMP) spark-long
	OTTLA_EXPLORE=1 $(PYTEST) -n 2 tests/unit
	OTTLA_SEEDS=5000 $(PYTEST) -n 2 --timeout 36000 tests/sim
	OTTLA_HISTORY_S=1200 OTTLA_BANK_S=300 $(PYTEST) --timeout 7200 tests/exactly_once
	OTTLA_GROUP_CONSUMERS=50 $(PYTEST) --timeout 7200 tests/integration/test_groups_kill9.py

# kill -9, a hundred times, under load.
crash: $(STAMP)
	OTTLA_KILLS=100 $(PYTEST) --timeout 7200 tests/integration/test_crash_kill9.py

fuzz: $(STAMP)
	$(BIN)/python fuzz/fuzz_parser.py --count 1000000

# Ottla and Apache Kafka in one run; writes docs/benchmarks.md.
bench: $(STAMP)
	@tools/install_system.sh kcat:kcat java:default-jre-headless
	$(BIN)/python -m bench

lock: $(BIN)/uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --extra console --extra spark --group dev pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .hypothesis build dist
