#!/bin/sh
# Prints the oldest version of macOS for which the package is built, so that Rust code is built for
# the same version as C code: MACOSX_DEPLOYMENT_TARGET if it is set, otherwise the version that R's
# compiler is told (-mmacosx-version-min), otherwise the one that it chooses itself.
#
#   CC=... CFLAGS=... tools/deployment-target.sh
if [ -n "$MACOSX_DEPLOYMENT_TARGET" ]; then
    echo "$MACOSX_DEPLOYMENT_TARGET"
    exit 0
fi
told=$(echo "$CC $CFLAGS" | sed -n 's/.*-mmacos[x]*-version-min=\([0-9.]*\).*/\1/p')
if [ -n "$told" ]; then
    echo "$told"
    exit 0
fi
# The macro is 110000 for version 11.0, and 101300 for 10.13.
# shellcheck disable=SC2086
chosen=$(${CC:-cc} $CFLAGS -dM -E -x c /dev/null |
    sed -n 's/.*__ENVIRONMENT_MAC_OS_X_VERSION_MIN_REQUIRED__ \([0-9]*\).*/\1/p')
[ -n "$chosen" ] || { echo "the version of macOS for which $CC compiles is unknown" >&2; exit 1; }
echo "$((chosen / 10000)).$((chosen / 100 % 100))"
