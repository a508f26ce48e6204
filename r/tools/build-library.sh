#!/bin/sh
# Builds the shared library core/librookery-<version>.so with cargo. src/Makevars runs this script in src/, with
# the compiler of R and its flags in CC and CFLAGS, and a command that removes symbols in STRIP.
#
#   ../tools/build-library.sh <target folder>
set -e
target=$1

# rustup adds cargo to the PATH of login shells, which R does not always inherit.
PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
export PATH

# Rust code is built for the same version of macOS as C code.
if [ "$(uname -s)" = Darwin ]; then
    MACOSX_DEPLOYMENT_TARGET=$(sh ../tools/deployment-target.sh)
    export MACOSX_DEPLOYMENT_TARGET
fi

jobs=
if [ -d rust/vendor ]; then
    # A package from a tarball. Nothing is written outside its folder: rustup's cargo would use
    # the caches in CARGO_HOME, and finds its toolchains in RUSTUP_HOME.
    RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}"
    CARGO_HOME=$PWD/rust/.cargo-home
    # Crates with C code are compiled as R's packages are. rustc links them, and cannot read what a
    # C compiler writes for link-time optimization.
    CFLAGS="$CFLAGS -fno-lto"
    export RUSTUP_HOME CARGO_HOME CC CFLAGS
    # CRAN permits two processors.
    [ "$NOT_CRAN" = true ] || jobs="-j 2"
else
    # In the source tree, one target folder serves R and cargo alike. Other flags would compile
    # the crates again.
    unset CC CFLAGS
fi

# rookery.so finds the library by this name. The version belongs to it, because the loader uses a
# library that the process has loaded under the same name, wherever that is: when another version of
# the package is loaded, the library of the former one is still there.
library=librookery-$(sed -n 's/^Version: *//p' ../DESCRIPTION).so
pack=
case $(uname -s) in
Darwin) name=-Wl,-install_name,@rpath/$library extension=dylib ;;
*)
    name=-Wl,-soname,$library extension=so
    # A twentieth of the library is relative relocations, which the loader of glibc 2.36 or later
    # also reads in a packed form.
    glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/^glibc 2\.\([0-9]*\).*/\1/p')
    [ "${glibc:-0}" -lt 36 ] || pack="-C link-arg=-Wl,-z,pack-relative-relocs"
    ;;
esac
(
    cd rust
    # shellcheck disable=SC2086
    cargo rustc --release --locked $jobs --target-dir "$target" -p rookery-r --lib \
        --crate-type cdylib -- -C link-arg="$name" $pack
)
rm -rf core
mkdir core
cp "$target/release/librookery_r.$extension" "core/$library"
# A sixth of the library's size is symbols. If they cannot be removed, the library is only larger.
[ -z "$STRIP" ] || $STRIP "core/$library" || true
