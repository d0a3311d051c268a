# `make demo` and `make test` do all set-up themselves; the rest is for working on the project.

SHELL := /bin/bash
PYTHON ?= python3
# Tools that the set-up had to bring along (cmake where the system has none) come last.
export PATH := $(PATH):$(CURDIR)/models/cache/bin

.NOTPARALLEL:
.PHONY: help setup setup-test demo test test-promises soak fuzz mutants deny fmt lint unit accuracy bench \
    bench-build bench-peers picture check-pages check-live \
    check-deploy check-alerts test-alerts test-dashboards test-fleet check-docs book clean

# Length of the soak; CPU seconds for each fuzz target, of which FUZZ="--seed 1 decode" are further arguments.
MINUTES ?= 20
SECONDS_EACH ?= 300

# In the order of the results page; BENCH_ARGS="--trials 5" goes to each.
BENCHES := ceiling stages boxes server neighbour overload idle rtt
.PHONY: $(BENCHES:%=bench-%)

help: ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

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
	for script in deploy/demo.sh .ci/run fuzz/rustc.sh; do bash -n $$script || exit 1; done
	$(PYTHON) -m compileall -q models/*.py benches/accuracy benches/peers server/tests/reference \
	    server/tests/mutations client-sim/tests/browser server/tests/browser promises fuzz/*.py \
	    deploy/checks deploy/observe docs/check

unit: ## All tests (set up first)
	$(PYTHON) -m unittest discover -s models
	$(PYTHON) -m unittest discover -s benches/peers/tests
	$(PYTHON) -m unittest discover -s promises/tests
	$(PYTHON) -m unittest discover -s fuzz
	$(PYTHON) -m unittest discover -s server/tests/mutations
	$(PYTHON) -m unittest discover -s deploy/observe/tests
	$(PYTHON) -m unittest discover -s deploy/checks/tests
	$(PYTHON) -m unittest discover -s docs/check/tests
	$(PYTHON) deploy/checks/check.py --fast
	$(PYTHON) docs/check/run.py --list > /dev/null
	$(PYTHON) docs/check/contract.py
	$(PYTHON) docs/check/links.py
	cargo test --workspace --locked

test-promises: setup ## The promises, each held against a running server (root on Debian, half an hour); docs/promises.md
	$(PYTHON) promises/run.py $(PROMISES)

soak: setup ## Cameras come, go and misbehave for MINUTES=20; report in target/soak
	$(PYTHON) promises/soak.py --minutes $(MINUTES)

fuzz: setup ## Hostile input for SECONDS_EACH=300 CPU seconds per target
	$(PYTHON) fuzz/run.py --seconds $(SECONDS_EACH) $(FUZZ)

mutants: ## Bugs planted in the server's core: does the simulation find each?
	$(PYTHON) server/tests/mutations/check.py

deny: ## Licences, sources, advisories and banned versions of all dependencies (installs cargo-deny)
	$(PYTHON) promises/run.py --only 32

accuracy: ## mAP of the server beside the reference: make accuracy IMAGES=folder with instances.json
	@$(PYTHON) models/setup.py --python-env accuracy
	cargo build --release --locked
	models/cache/pyenv/bin/python benches/accuracy/run.py --images $(IMAGES)

bench: bench-build ## All benches (an hour) and benches/RESULTS.md; one of them: make bench-ceiling
	@failed=0; for name in $(BENCHES); do \
	    echo "== $$name"; code=0; \
	    ./target/release/vedette-bench $$name $(BENCH_ARGS) || code=$$?; \
	    case $$code in 0) ;; 1) failed=1 ;; *) exit $$code ;; esac; \
	done; \
	$(if $(findstring --quick,$(BENCH_ARGS)),,./target/release/vedette-bench results || exit 2;) \
	exit $$failed

$(BENCHES:%=bench-%): bench-%: bench-build
	./target/release/vedette-bench $* $(BENCH_ARGS)

bench-peers: ## Vedette beside servers in Python and C++ (half an hour or more); BENCH_ARGS=--quick: does it run?
	$(PYTHON) benches/peers/run.py $(BENCH_ARGS)

bench-build: setup
	cargo build --release --locked --workspace

check-pages: ## client-sim's pages in a browser (needs Chromium); pictures in target/pages
	cargo build --locked -p client-sim --bin client-sim --example sample_reports
	rm -rf target/pages && ./target/debug/examples/sample_reports target/pages
	$(PYTHON) client-sim/tests/browser/check.py target/debug/client-sim target/pages

check-deploy: ## The deploy files: container, compose, systemd, EC2, packages (installs its tools)
	$(PYTHON) deploy/checks/check.py

check-alerts: ## The alert rules with made-up series (needs promtool: apt-get install prometheus)
	promtool check rules deploy/prometheus/rules/*.yml
	promtool test rules deploy/prometheus/tests/*.yml

test-alerts: setup ## Breaks running servers until every alert has fired (needs prometheus, seven minutes)
	cargo build --release --locked -p client-sim
	$(PYTHON) deploy/observe/fire.py

test-dashboards: setup ## Every query of the dashboards has an answer on a live system (needs prometheus)
	cargo build --release --locked -p vedette-server -p client-sim
	$(PYTHON) deploy/observe/dashboards.py

test-fleet: setup ## Servers behind proxies are killed, drained and added, three times; table in docs/fleet.md (half an hour)
	$(PYTHON) promises/fleet.py --runs 3

check-docs: setup ## What the pages say is run: commands, files, the contract, links; DOCS=--all: the slow ones too
	cargo build --release --locked -p vedette-server -p client-sim
	$(PYTHON) docs/check/run.py $(DOCS)
	$(PYTHON) docs/check/contract.py
	$(PYTHON) docs/check/links.py

book: ## The pages as a book in target/book (needs mdBook)
	$(PYTHON) docs/check/site.py

check-live: setup ## The live page in a browser (needs Node and Chromium); pictures in target/live
	node --test server/tests/browser/*.test.mjs
	cargo build --release --locked -p vedette-server -p client-sim
	$(PYTHON) server/tests/browser/check.py

picture: setup ## Make the README's picture again
	@./deploy/demo.sh --picture docs/detections.jpg

clean: ## Remove what was built and fetched
	cargo clean
	rm -rf models/cache
