# The commands for users, maintainers and CI. `make` without a target lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The library that the R package is installed into.
LIB ?= .local/lib
# The port of `make run`.
PORT ?= 8000
# The seconds that each fuzz target runs.
SECONDS_EACH ?= 30

# One target folder for all builds with cargo: the workspace, the R package, and the tests of fuzz/.
export CARGO_TARGET_DIR := $(CURDIR)/target
export ROOKERY_LIB := $(abspath $(LIB))
# The folder in which rustup installs cargo, which a new installation has not yet added to PATH.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

.PHONY: help setup install run test differential dependants loadtest check nightly portable contenders peers bench soak fuzz conformance soundness docs site settings pristine stranger release clean
# Two setups in parallel would run apt twice in parallel.
.NOTPARALLEL:

help: ## list the commands
	@grep -E '^[a-z]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 14

setup: ## install the requirements of run, test, check and bench (each of them also does so itself)
	@scripts/setup

setup-%:
	@scripts/setup $*

install: setup-run ## install the R package, its vignettes and the command into LIB (default .local/lib) and the bin beside it
	@scripts/install "$(ROOKERY_LIB)" $(if $(filter install,$(MAKECMDGOALS)),--vignettes)

run: install ## serve examples/shiny at http://127.0.0.1:PORT (default 8000) until Ctrl-C
	@exec scripts/with-rookery "$(ROOKERY_LIB)" Rscript -e 'rookery::serve("examples/shiny", port = $(PORT)L)'

test: setup-test install ## run all tests: Rust, fuzz corpora, R, Chromium, comparison with httpuv, settings, unfair clients
	@scripts/test

differential: setup-test install ## compare the behaviour with that of Debian's httpuv (ONLY=glob, JOBS=n)
	@python3 tests/differential/run.py $(if $(ONLY),--only '$(ONLY)') $(if $(JOBS),--jobs $(JOBS))

dependants: setup-dependants install ## run the tests of packages that use httpuv with httpuv and with Rookery (ONLY="shiny fiery", SOURCES=folder, WRITE=1)
	@SOURCES="$(SOURCES)" tests/dependants/run $(ONLY) $(if $(WRITE),--write)

loadtest: setup-test install ## replay a recorded Shiny session of 1, 10 and 50 users with httpuv and with Rookery (WRITE=1: update the vignette)
	@python3 bench/shinyload/run.py $(if $(WRITE),--write)

check: setup-check install ## check formatting, lints, names, docs, settings, regressions in counts, deploy/, R CMD check
	@scripts/check

nightly: setup-check setup-test setup-conformance setup-soak setup-portable setup-site setup-pristine install ## run the checks of what a change seldom breaks, for some hours (root; Go): the oldest Rust, each combination of features, conformance, soak, packages, other systems, the website, new Debians
	@scripts/check nightly

portable: setup-portable ## build for macOS and Windows, and run the server's tests for Windows under Wine
	@scripts/check portable

contenders: setup-bench setup-contenders ## install the contenders of `make bench` that Debian lacks: Go, crates, npm ws, R packages (SOURCES=folder)
	@bench/contenders/install $(SOURCES)

# The former name of `make contenders`.
peers: contenders

bench: setup-bench install ## measure all published figures and those of the installed contenders (GROUP=name, QUICK=1, GOALS=1)
	@scripts/with-rookery "$(ROOKERY_LIB)" python3 bench/run.py $(if $(GROUP),--group $(GROUP)) $(if $(QUICK),--quick) \
	  $(if $(GOALS),--goals)

soak: setup-soak setup-test install ## test for leaks with uploads, WebSockets and slow clients for SECONDS (default 600), and several workers under failures (half an hour more without SECONDS)
	@ROOKERY_SESSIONS=1000 ROOKERY_RELOADS=20 node --test tests/browser/sticky.test.mjs
	@ROOKERY_REQUESTS=1000000 ROOKERY_RELOADS=20 node --test --test-name-pattern='reloads under load' tests/browser/workers.test.mjs
	@scripts/with-rookery "$(ROOKERY_LIB)" python3 bench/soak/run.py $(or $(SECONDS),600)
	@scripts/with-rookery "$(ROOKERY_LIB)" python3 bench/soak/unread.py
	@python3 tests/fairness/run.py --seconds 10
	@scripts/with-rookery "$(ROOKERY_LIB)" python3 bench/soak/workers.py $(if $(SECONDS),short,long)

fuzz: ## run each fuzz target for SECONDS_EACH seconds (default 30); needs the nightly toolchain
	@fuzz/run $(SECONDS_EACH) $(TARGET)

conformance: setup-conformance install ## test WebSockets with Autobahn, HTTP/2 with h2spec, ACME with Pebble (both need Go), TLS with sslscan and testssl, Shiny in Firefox
	@python3 tests/conformance/run.py all full
	@python3 tests/conformance/h2spec.py
	@python3 tests/conformance/pebble.py
	@python3 tests/conformance/scanners.py
	@cd tests/browser && ROOKERY_FIREFOX=required node --test firefox.test.mjs

soundness: ## run Miri, loom, AddressSanitizer and ThreadSanitizer; needs the nightly toolchain
	@scripts/soundness

docs: setup-docs install ## build the API documentation of the crates and the reference pages of the R package
	@scripts/r/docs

site: setup-site install ## build the website, with the crates' API documentation, into .local/site; `scripts/check site` tests it
	@scripts/r/docs crates
	@site/build.py

settings: ## generate the files that come from the table of settings (crates/settings)
	cargo run --quiet --locked -p rookery-settings --example generate

pristine: setup-pristine ## run and test in a new Debian 12 and a new Debian 13; needs root
	@scripts/pristine bookworm
	@scripts/pristine trixie

stranger: setup-pristine setup-run ## use the crates and the R package from their tarballs alone, in a new Debian 13; needs root
	@scripts/stranger

release: setup-release ## try out the release VERSION: checks, all packages, checksums, SBOM; changes nothing
	@scripts/release "$(or $(VERSION),$(error name the version: make release VERSION=X.Y.Z))" --dry-run

clean: ## remove all builds, and .local
	cargo clean
	rm -rf .local fuzz/target bench/target tests/browser/node_modules r/src/*.o r/src/*.so r/src/core r/src/rookery r.Rcheck
