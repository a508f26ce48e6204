#!/bin/sh
# Proves that `R CMD build r` gives a tarball that installs anywhere: builds it, tries configure without cargo and with
# one that is too old, installs it into an empty library in another folder without a network and with no crates at
# hand, and serves a request and an app from there.
#
#   r/tools/tarball.sh [<folder to keep the tarball in>]
#
# CHECK=1 also runs R CMD check on it. `make check` does all of this; it builds the Rust half twice: R CMD build does for
# the vignette. Not part of the tarball.
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
if (cd "$work/rookery" && env -i HOME="$work/home" PATH="$work/bare" R_HOME="$(R RHOME)" ./configure) 2>"$work/said"; then
    fail "configure without cargo"
fi
grep -q "cargo was not found" "$work/said" || fail "configure without cargo says: $(cat "$work/said")"
grep -q "rustup.rs" "$work/said" || fail "configure without cargo does not say where to get it"
printf '#!/bin/sh\necho "rustc 1.70.0 (90c541806 2023-05-31)"\n' >"$work/old/rustc"
printf '#!/bin/sh\necho "cargo 1.70.0"\n' >"$work/old/cargo"
chmod +x "$work/old/rustc" "$work/old/cargo"
if (cd "$work/rookery" && env -i HOME="$work/home" PATH="$work/old:$work/bare" R_HOME="$(R RHOME)" ./configure) 2>"$work/said"; then
    fail "configure with an old rustc"
fi
grep -q "rustc is version 1.70, which is too old" "$work/said" || fail "configure with an old rustc says: $(cat "$work/said")"
rm -rf "$work/rookery"
say "configure says what is missing"

# No network where the system lets us take it away; no crates of this machine's in any case.
alone=
if unshare -rn true 2>/dev/null; then alone="unshare -rn"; fi
cd "$work/lib"
# rustup's cargo looks for its toolchains beside CARGO_HOME, or where RUSTUP_HOME says.
if ! RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}" CARGO_HOME="$work/cargo" \
    $alone R CMD INSTALL -l "$work/lib" "$tarball" >"$work/install.log" 2>&1; then
    cat "$work/install.log" >&2
    fail "R CMD INSTALL"
fi
say "installed offline${alone:+, without a network}"

cat >"$work/app.R" <<'APP'
function(req) list(status = 200L, headers = list(), body = "from the tarball")
APP
cd /
# There before it is looked into.
: >"$work/serve.log"
"$work/lib/rookery/exec/rookery" serve "$work/app.R" --port 0 >"$work/serve.log" 2>&1 &
pid=$!
for _ in $(seq 300); do
    url=$(sed -n 's/^Serving on \([^ ]*\) .*/\1/p' "$work/serve.log")
    [ -n "$url" ] && break
    sleep 0.2
done
[ -n "$url" ] || { cat "$work/serve.log" >&2; fail "rookery serve"; }
answer=$(Rscript --vanilla -e 'cat(readLines(commandArgs(TRUE)[1], warn = FALSE))' "$url/")
kill -TERM "$pid"
status=0
wait "$pid" || status=$?
[ "$answer" = "from the tarball" ] || fail "it answered: $answer"
[ "$status" -eq 0 ] || fail "rookery serve ended with status $status"
kind=$(R_LIBS="$work/lib" Rscript -e 'rookery::use_compat(quiet = TRUE); cat(rookery::which_httpuv()$kind)')
[ "$kind" = rookery ] || fail "use_compat() brings: $kind"
say "served a request; the httpuv in front is rookery's"

if [ "${CHECK:-}" = 1 ]; then
    cd "$work/build"
    # On what was installed above, so that nothing is built again. The tests are those of `make test`, over the same
    # sources. Incoming checks ask CRAN, and the clock check a host of its own.
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
