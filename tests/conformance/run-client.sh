#!/usr/bin/env bash
# Our client under Autobahn's fuzzing server.
#
#   run-client.sh [full|short]      default: full; short leaves out sections 12 and 13 (compression), which take most of the time
set -euo pipefail
size=${1:-full}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${CONFORMANCE_OUT:-$root/.local/conformance}/client-$size
# shellcheck source=lib.sh
source "$here/lib.sh"

binary=$(example autobahn_client)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
play "$out" "$size" "${CONFORMANCE_DRIVER:-$here/ab-client.sh}" "$port" '*' "$(left_out "$size")" -- "$binary"
