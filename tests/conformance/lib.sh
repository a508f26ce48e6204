# What both roles need; sourced.

# Builds an example of the crate and prints its path. CARGO_FLAGS: other than a release build.
example() {
    (cd "$root" && cargo build --quiet ${CARGO_FLAGS:---release} -p rookery-websocket --example "$1" \
        --message-format json) | python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["target"]["name"] == sys.argv[1]:
        print(message["executable"])' "$1"
}

# Runs a driver of the suite and judges what it found: play OUT SIZE COMMAND ...
#
# What an earlier run found is deleted first, or a run that never began would be judged by it. The driver ends with 1 where a
# case failed, which is the judge's to say, since some failures are expected; with anything else it did not play to the end.
play() {
    local out=$1 size=$2 status=0
    shift 2
    mkdir -p "$out"
    rm -f "$out/index.json"
    AB_OUT=$out "$@" > "$out/summary.txt" || status=$?
    if [ "$status" -gt 1 ] || [ ! -s "$out/index.json" ]; then
        tail -n 20 "$out/summary.txt" >&2
        echo "conformance: the driver ended with status $status and $([ -s "$out/index.json" ] && echo an || echo no) index: $*" >&2
        return 1
    fi
    python3 "$here/judge.py" "$out/index.json" "$size"
}

left_out() {
    case $1 in
        full) echo '' ;;
        short) echo '12 13' ;;
        *) echo "conformance: $1 is neither full nor short" >&2; exit 2 ;;
    esac
}
