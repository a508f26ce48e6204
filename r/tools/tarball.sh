#!/bin/sh
# Tests the tarball that `R CMD build r` makes: builds it, runs configure without cargo and with an old
# rustc, installs the tarball into an empty library in another folder, without a network and without
# cached crates, and serves an app from there. Rookery's package httpuv becomes a tarball of its own.
#
#   r/tools/tarball.sh [<folder to keep the tarballs in>]
#
# Environment: CHECK=1              runs R CMD check --as-cran on the tarball, as `make nightly` does
#              ROOKERY_COMPAT=yes   builds the tarball with rookery's httpuv in it, for users who
#                                   install from files. By default it has none, as repositories want.
#              VIGNETTES=no         leaves out the vignettes
#
# The Rust code is built twice, because R CMD build needs it for the vignettes, but not its speed.
# This script is not part of the tarball.
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
without=
[ "${VIGNETTES:-}" != no ] || without=vignettes
unoptimised="CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=false
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=0"
# shellcheck disable=SC2086
env $unoptimised R CMD build ${without:+--no-build-$without} "$here" >build.log 2>&1 || { cat build.log >&2; fail "R CMD build"; }
tarball=$(ls "$work"/build/rookery_*.tar.gz)
R CMD build "$here/../compat/httpuv" >compat.log 2>&1 || { cat compat.log >&2; fail "R CMD build compat/httpuv"; }
compat=$(ls "$work"/build/httpuv_*.tar.gz)
size=$(wc -c <"$tarball")
say "built $(basename "$tarball"), $((size / 1024)) KiB, and $(basename "$compat")"
# CRAN's limit.
[ "$size" -le 10000000 ] || fail "the tarball is larger than 10 MB"
if [ "${ROOKERY_COMPAT:-}" != yes ] && tar tzf "$tarball" | grep -q compat-src; then
    fail "the tarball contains rookery's httpuv"
fi
# From here on, the tarball decides.
unset ROOKERY_COMPAT || true

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
# The installation must write nothing into the home folder, which cargo uses by default. rustup's
# cargo looks for its toolchains in RUSTUP_HOME.
if ! PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH" RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}" HOME="$work/home" \
    $isolate env -u CARGO_HOME _R_SHLIB_BUILD_OBJECTS_SYMBOL_TABLES_=TRUE R CMD INSTALL -l "$work/lib" "$tarball" >"$work/install.log" 2>&1; then
    cat "$work/install.log" >&2
    fail "R CMD INSTALL"
fi
[ -z "$(find "$work/home" -mindepth 1 -print -quit)" ] || fail "R CMD INSTALL wrote into HOME: $(find "$work/home")"
for tool in cargo rustc; do
    grep -q "^using $tool [0-9]" "$work/install.log" || fail "R CMD INSTALL does not print the version of $tool"
done
say "installed offline${isolate:+, without a network}: $(du -sb "$work/lib/rookery" | cut -f1) bytes"

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

export R_USER_CACHE_DIR="$work/cache"
if [ ! -d "$work/lib/rookery/compat" ]; then
    printf 'shiny::shinyApp(shiny::fluidPage("shiny"), function(input, output) {})\n' >"$work/shiny.R"
    for code in 'rookery::use_compat()' "rookery::serve('$work/shiny.R', port = 0L)"; do
        status=0
        R_LIBS="$work/lib" Rscript -e "$code" >"$work/message" 2>&1 || status=$?
        [ "$status" -ne 0 ] || fail "$code succeeds without rookery's httpuv"
        grep -q 'rookery::install_compat("httpuv_' "$work/message" || fail "$code reports: $(cat "$work/message")"
    done
    R_LIBS="$work/lib" Rscript -e 'rookery::install_compat(commandArgs(TRUE)[1])' "$compat" || fail "install_compat()"
    say "use_compat() and serve() say how to install rookery's httpuv, and install_compat() does it"
fi
kind=$(R_LIBS="$work/lib" Rscript -e 'rookery::use_compat(quiet = TRUE); cat(rookery::which_httpuv()$kind)')
[ "$kind" = rookery ] || fail "use_compat() loads: $kind"
say "served a request; use_compat() loads rookery's httpuv"

if [ "${CHECK:-}" = 1 ]; then
    cd "$work/build"
    # R CMD check uses the installation from above, so that nothing is built again. The incoming
    # checks need CRAN, and the clock check needs another host. Without the manual, LaTeX is not
    # needed. r/cran-comments.md names the notes. Without CRAN, its lists of packages are empty.
    mkdir -p "$work/cran/web/packages" "$work/cran/src/contrib"
    : >"$work/cran/src/contrib/PACKAGES"
    Rscript --vanilla -e 'saveRDS(cbind(Package = "none", Maintainer = "none"), commandArgs(TRUE)[1])' \
        "$work/cran/web/packages/packages.rds"
    {
        printf 'menu_name\tURL\tdefault\tsource\twin.binary\tmac.binary\n'
        for name in CRAN BioCsoft BioCann BioCexp; do
            printf '%s\tnone\tfile://%s\tTRUE\tTRUE\tFALSE\tFALSE\n' "$name" "$work/cran"
        done
    } >"$work/cran/repositories"
    export R_CRAN_WEB="file://$work/cran" R_REPOSITORIES="$work/cran/repositories"
    R_LIBS="$work/lib" _R_CHECK_CRAN_INCOMING_=false _R_CHECK_SYSTEM_CLOCK_=false _R_CHECK_FORCE_SUGGESTS_=false \
        R CMD check --as-cran --no-manual ${without:+--ignore-$without} --install="check:$work/install.log" --library="$work/lib" "$tarball" \
        >"$work/check.log" 2>&1 || { cat "$work/check.log" >&2; fail "R CMD check"; }
    if grep -qE '(WARNING|ERROR)$' "$work/check.log" || ! grep -q '^Status: ' "$work/check.log"; then
        cat "$work/check.log" >&2
        fail "R CMD check has warnings"
    fi
    say "R CMD check: $(sed -n 's/^Status: //p' "$work/check.log")"
    grep -A 3 'NOTE$' "$work/check.log" || true
    # What r/cran-comments.md does not explain. Notes on examples, tests and vignettes are about the time
    # that they took, which depends on the machine. `Found` begins the lines of the note on compiled code.
    named='installed package size|package dependencies|compiled code|examples|tests|re-building of vignette outputs'
    if grep '^\* .*NOTE$' "$work/check.log" | grep -vE "^\* checking ($named) " ||
        grep -E '^ +Found ' "$work/check.log" | grep -v "non-API calls to R: .R_PolledEvents., .R_wait_usec.$"; then
        fail "R CMD check has notes that r/cran-comments.md does not name"
    fi
fi
if [ $# -gt 0 ]; then cp "$tarball" "$compat" "$1"; fi
