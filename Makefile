# `make demo` and `make test` do all set-up themselves; the rest is for working on the project.

SHELL := /bin/bash
PYTHON ?= python3
# Tools that the set-up had to bring along (cmake where the system has none) come last.
export PATH := $(PATH):$(CURDIR)/models/cache/bin

.NOTPARALLEL:
.PHONY: help setup setup-test demo test fmt lint unit accuracy picture clean

help: ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

demo: setup ## Real pictures in, boxes out, then a load run with a verdict (exit code = verdict)
	@./deploy/demo.sh

test: setup-test fmt lint unit ## Everything that must hold: formatting, lints, all tests

setup: ## Fetch runtime, model, pictures and build tools (once)
	@$(PYTHON) models/setup.py

setup-test:
	@$(PYTHON) models/setup.py --python-env

fmt: ## Check formatting
	cargo fmt --all --check

lint: ## Clippy with warnings as errors, shell and Python syntax
	cargo clippy --workspace --all-targets --locked -- -D warnings
	bash -n deploy/demo.sh .ci/run
	$(PYTHON) -m compileall -q models/*.py benches/accuracy server/tests/reference

unit: ## All tests (set up first)
	$(PYTHON) -m unittest discover -s models
	cargo test --workspace --locked

accuracy: ## mAP of the server beside the reference: make accuracy IMAGES=folder with instances.json
	@$(PYTHON) models/setup.py --python-env accuracy
	cargo build --release --locked
	models/cache/pyenv/bin/python benches/accuracy/run.py --images $(IMAGES)

picture: setup ## Make the README's picture again
	@./deploy/demo.sh --picture docs/detections.jpg

clean: ## Remove what was built and fetched
	cargo clean
	rm -rf models/cache
