#!/bin/sh
# Tests the tarball that `R CMD build r` makes: builds it, runs configure without cargo and with an old
# rustc, installs the tarball into an empty library in another folder, without a network and without
# cached crates, and serves an app from there.
#
#   r/tools/tarball.sh [<folder to keep the tarball in>]
#
# CHECK=1 also runs R CMD check on the tarball. `make check` does all of this. The Rust code is built
# twice, because R CMD build needs it for the vignettes. This script is not part of the tarball.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/build" "$work/lib" "$work/home"
unset R_LIBS CARGO_TARGET_DIR || true
export R_LIBS_USER="$work/none"

say() { echo "tarball: $*"; }
fail() { echo "tarball: FAILED: $*" >&2; exit 1; }

cd "$work/build"
R CMD build "$here" >build.log 2>&1 || { cat build.log >&2; fail "R CMD build"; }
tarball=$(ls "$work"/build/rookery_*.tar.gz)
say "built $(basename "$tarball"), $(du -k "$tarball" | cut -f1) KiB"

mkdir "$work/bare" "$work/old"
tar xzf "$tarball" -C "$work"
for tool in sh sed grep head cat uname tr; do ln -s "$(command -v $tool)" "$work/bare/$tool"; done
if (cd "$work/rookery" && env -i HOME="$work/home" PATH="$work/bare" R_HOME="$(R RHOME)" ./configure) 2>"$work/message"; then
    fail "configure without cargo"
fi
grep -q "cargo was not found" "$work/message" || fail "the message of configure without cargo is: $(cat "$work/message")"
grep -q "rustup.rs" "$work/message" || fail "configure without cargo does not print how to install cargo"
printf '#!/bin/sh\necho "rustc 1.70.0 (90c541806 2023-05-31)"\n' >"$work/old/rustc"
printf '#!/bin/sh\necho "cargo 1.70.0"\n' >"$work/old/cargo"
chmod +x "$work/old/rustc" "$work/old/cargo"
if (cd "$work/rookery" && env -i HOME="$work/home" PATH="$work/old:$work/bare" R_HOME="$(R RHOME)" ./configure) 2>"$work/message"; then
    fail "configure with an old rustc"
fi
grep -q "rustc is version 1.70, which is too old" "$work/message" || fail "the message of configure with an old rustc is: $(cat "$work/message")"
rm -rf "$work/rookery"
say "configure reports what is missing"

# Without a network, if the system permits a network namespace, and always without cached crates.
isolate=
if unshare -rn true 2>/dev/null; then isolate="unshare -rn"; fi
cd "$work/lib"
# rustup's cargo looks for its toolchains beside CARGO_HOME, or in RUSTUP_HOME.
if ! RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}" CARGO_HOME="$work/cargo" \
    $isolate R CMD INSTALL -l "$work/lib" "$tarball" >"$work/install.log" 2>&1; then
    cat "$work/install.log" >&2
    fail "R CMD INSTALL"
fi
say "installed offline${isolate:+, without a network}"

cat >"$work/app.R" <<'APP'
function(req) list(status = 200L, headers = list(), body = "from the tarball")
APP
cd /
# The log must exist before it is read below.
: >"$work/serve.log"
"$work/lib/rookery/exec/rookery" serve "$work/app.R" --port 0 >"$work/serve.log" 2>&1 &
pid=$!
for _ in $(seq 300); do
    url=$(sed -n 's/^Serving on \([^ ]*\) .*/\1/p' "$work/serve.log")
    [ -n "$url" ] && break
    sleep 0.2
done
[ -n "$url" ] || { cat "$work/serve.log" >&2; fail "rookery serve"; }
response=$(Rscript --vanilla -e 'cat(readLines(commandArgs(TRUE)[1], warn = FALSE))' "$url/")
kill -TERM "$pid"
status=0
wait "$pid" || status=$?
[ "$response" = "from the tarball" ] || fail "the response was: $response"
[ "$status" -eq 0 ] || fail "rookery serve ended with status $status"
kind=$(R_LIBS="$work/lib" Rscript -e 'rookery::use_compat(quiet = TRUE); cat(rookery::which_httpuv()$kind)')
[ "$kind" = rookery ] || fail "use_compat() loads: $kind"
say "served a request; use_compat() loads rookery's httpuv"

if [ "${CHECK:-}" = 1 ]; then
    cd "$work/build"
    # R CMD check uses the installation from above, so that nothing is built again. `make test` runs
    # the tests. The incoming checks need CRAN, and the clock check needs another host.
    R_LIBS="$work/lib" _R_CHECK_CRAN_INCOMING_=false _R_CHECK_SYSTEM_CLOCK_=false _R_CHECK_FORCE_SUGGESTS_=false \
        R CMD check --no-manual --no-tests --install="check:$work/install.log" --library="$work/lib" "$tarball" \
        >"$work/check.log" 2>&1 || { cat "$work/check.log" >&2; fail "R CMD check"; }
    if grep -qE '(WARNING|ERROR)$' "$work/check.log" || ! grep -q '^Status: ' "$work/check.log"; then
        cat "$work/check.log" >&2
        fail "R CMD check has warnings"
    fi
    say "R CMD check: $(sed -n 's/^Status: //p' "$work/check.log")"
    grep -A 3 'NOTE$' "$work/check.log" || true
fi
if [ $# -gt 0 ]; then cp "$tarball" "$1"; fi
