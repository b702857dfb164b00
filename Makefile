# `make demo` needs Python 3.11+ and make. `make test` needs root too: it starts daemons in namespaces of its own.
SHELL := /bin/bash
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --require-virtualenv
COMPILE := $(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --custom-compile-command "make lock" pyproject.toml --extra gateway --group build

.PHONY: demo test e2e lint docs screenshots lock clean system bench-timing bench-promotion bench-console faults soak

demo: $(VENV)/run.stamp
	@$(VENV)/bin/anvil-tui demo

test: $(VENV)/dev.stamp system
	@$(PY) -m tests.stages

e2e: $(VENV)/dev.stamp system
	@$(PY) -m tests.stages parts e2e kill kill-2

lint: $(VENV)/dev.stamp
	@$(PY) -m tests.stages format lint imports types

bench-timing: $(VENV)/dev.stamp
	@$(PY) -m benchmarks.timing

bench-promotion: $(VENV)/dev.stamp system
	@$(PY) -m benchmarks.promotion

bench-console: $(VENV)/dev.stamp system
	@$(PY) -m benchmarks.console $(if $(QUICK),--quick)

faults: $(VENV)/dev.stamp system
	@$(PY) -m tests.real.netns $(PY) -m tests.faults

soak: $(VENV)/dev.stamp system
	@$(PY) -m tests.real.netns $(PY) -m tests.soak $(or $(SECONDS),3600) $(SEED)

docs: $(VENV)/dev.stamp
	@$(PY) -m docs

screenshots: $(VENV)/dev.stamp system
	@$(PY) -m screenshots

lock: $(VENV)/dev.stamp
	$(COMPILE) --upgrade -o requirements/run.lock
	$(COMPILE) --upgrade --group dev -c requirements/run.lock -o requirements/dev.lock

clean:
	rm -rf $(VENV) .real build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

system:
	@tests/system-packages.sh

$(PY):
	@tests/make-venv.sh $(VENV)

$(VENV)/%.stamp: requirements/%.lock pyproject.toml | $(PY)
	@echo "installing $< into $(VENV)"
	@$(PIP) install -qq --require-hashes -r $<
	@$(PIP) install -qq --no-deps --no-build-isolation --no-index -e .
	@touch $@
