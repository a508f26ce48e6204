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

left_out() {
    case $1 in
        full) echo '' ;;
        short) echo '12 13' ;;
        *) echo "conformance: $1 is neither full nor short" >&2; exit 2 ;;
    esac
}
