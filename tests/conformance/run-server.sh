#!/usr/bin/env bash
# Our server under Autobahn's fuzzing client.
#
#   run-server.sh [full|short]      default: full; short leaves out sections 12 and 13 (compression), which take most of the time
set -euo pipefail
size=${1:-full}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${CONFORMANCE_OUT:-$root/.local/conformance}/server-$size
# shellcheck source=lib.sh
source "$here/lib.sh"

binary=$(example echo_server)
log=$(mktemp)
"$binary" 127.0.0.1:0 --deflate > "$log" 2> /dev/null &
server=$!
trap 'kill "$server" 2> /dev/null || true; rm -f "$log"' EXIT
for _ in $(seq 50); do
    url=$(sed -n 's/^listening on //p' "$log")
    [ -n "$url" ] && break
    sleep 0.1
done
[ -n "$url" ] || { echo 'conformance: the server did not start' >&2; exit 1; }

export AB_AGENT=rookery
play "$out" "$size" "${CONFORMANCE_DRIVER:-$here/ab-server.sh}" "$url" '*' "$(left_out "$size")"
