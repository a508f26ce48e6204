# Everything a newcomer, a maintainer and CI do, each by one name. `make` alone lists the names.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The library that the package is installed in.
LIB ?= .local/lib
# Where `make run` serves.
PORT ?= 8000
# Seconds each fuzz target runs.
SECONDS_EACH ?= 30

# One target folder for everything that cargo builds here: cargo's own, R's build of the package, the fuzz replay.
export CARGO_TARGET_DIR := $(CURDIR)/target
export ROOKERY_LIB := $(abspath $(LIB))
# Where rustup puts cargo, for a shell that does not know it yet.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

.PHONY: help setup install run test differential dependants loadtest check contenders peers bench soak fuzz conformance soundness docs settings pristine clean
# Two setups at once would ask apt twice at once.
.NOTPARALLEL:

help: ## this list
	@grep -E '^[a-z]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 14

setup: ## install what is missing for run, test, check and bench; each of them installs what it needs by itself
	@scripts/setup

setup-%:
	@scripts/setup $*

install: setup-run ## install the R package, its vignettes and the command into LIB (default .local/lib) and its bin
	@scripts/install "$(ROOKERY_LIB)" $(if $(filter install,$(MAKECMDGOALS)),--vignettes)

run: install ## serve examples/shiny at http://127.0.0.1:PORT (default 8000) until Ctrl-C
	@exec scripts/with-rookery "$(ROOKERY_LIB)" Rscript -e 'rookery::serve("examples/shiny", port = $(PORT)L)'

test: setup-test install ## all tests: Rust, fuzz corpora, R, Chromium
	@scripts/test

differential: setup-test install ## Debian's httpuv and this one side by side: probes, equal, allowed (ONLY=glob, JOBS=n)
	@python3 tests/differential/run.py $(if $(ONLY),--only '$(ONLY)') $(if $(JOBS),--jobs $(JOBS))

dependants: setup-dependants install ## packages that use httpuv, their tests over httpuv and over this one (ONLY="shiny fiery", SOURCES=folder, WRITE=1)
	@SOURCES="$(SOURCES)" tests/dependants/run $(ONLY) $(if $(WRITE),--write)

loadtest: setup-test install ## a recorded Shiny session, 1, 10 and 50 users, over httpuv and over this one (WRITE=1: into the vignette)
	@python3 bench/shinyload/run.py $(if $(WRITE),--write)

check: setup-check install ## formatting, lints, names and prose, docs, conformance, counted regressions, the tarball, R CMD check
	@scripts/check

contenders: setup-bench setup-contenders ## install what `make bench` compares with and Debian lacks: Go, crates, npm ws, R packages (SOURCES=folder)
	@bench/contenders/install $(SOURCES)

# The former name of `make contenders`.
peers: contenders

bench: setup-bench install ## measure every claim beside the contenders that are installed (GROUP=name, QUICK=1, GOALS=1)
	@scripts/with-rookery "$(ROOKERY_LIB)" python3 bench/run.py $(if $(GROUP),--group $(GROUP)) $(if $(QUICK),--quick) \
	  $(if $(GOALS),--goals)

soak: setup-soak setup-test install ## uploads, WebSockets, slow clients and kills for SECONDS (default 600), and what is left of them, and what becomes of several Rs (half an hour more without SECONDS)
	@ROOKERY_SESSIONS=1000 ROOKERY_RELOADS=20 node --test tests/browser/sticky.test.mjs
	@ROOKERY_REQUESTS=1000000 ROOKERY_RELOADS=20 node --test --test-name-pattern='reloads under load' tests/browser/workers.test.mjs
	@scripts/with-rookery "$(ROOKERY_LIB)" python3 bench/soak/run.py $(or $(SECONDS),600)
	@scripts/with-rookery "$(ROOKERY_LIB)" python3 bench/soak/unread.py
	@scripts/with-rookery "$(ROOKERY_LIB)" python3 bench/soak/workers.py $(if $(SECONDS),short,long)

fuzz: ## run each fuzz target for SECONDS_EACH seconds (default 30); needs the nightly toolchain
	@scripts/fuzz $(SECONDS_EACH) $(TARGET)

conformance: setup-conformance install ## the Autobahn suite over the WebSocket crate, both roles, and over the server with TLS and within HTTP/2, h2spec over the server, Pebble over its certificates (need Go), sslscan and testssl, Shiny in Firefox
	@python3 tests/conformance/run.py all full
	@python3 tests/conformance/h2spec.py
	@python3 tests/conformance/pebble.py
	@python3 tests/conformance/scanners.py
	@cd tests/browser && ROOKERY_FIREFOX=required node --test firefox.test.mjs

soundness: ## Miri, loom, AddressSanitizer and ThreadSanitizer; needs the nightly toolchain
	@scripts/soundness

docs: setup-docs install ## API documentation of the crates, reference pages of the R package
	@scripts/docs

settings: ## write the files that are made from the table of settings (crates/settings)
	cargo run --quiet --locked -p rookery-settings --example generate

pristine: setup-pristine ## run and test in a new Debian 12 and a new Debian 13, from nothing; needs root
	@scripts/pristine bookworm
	@scripts/pristine trixie

clean: ## remove what was built here and .local
	cargo clean
	rm -rf .local fuzz/target bench/target tests/browser/node_modules r/src/*.o r/src/*.so r/src/rookery r.Rcheck
