#!/usr/bin/env bash
# Both runs fail when the driver does, however it fails, also where an earlier run left an index that would pass.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# An index that the judge takes: as many cases as a short run has, all as expected.
python3 - "$here/expected.json" > "$work/passing.json" << 'END'
import json, sys
expected = json.load(open(sys.argv[1]))
cases = expected["informational"] + [f"c{n}" for n in range(expected["cases"]["short"] - len(expected["informational"]))]
result = lambda case: {"behavior": "INFORMATIONAL" if case in expected["informational"] else "OK", "behaviorClose": "OK"}
print(json.dumps({"rookery": {case: result(case) for case in cases}}))
END

driver() { printf '#!/usr/bin/env bash\n%s\n' "$2" > "$work/$1"; chmod +x "$work/$1"; }
driver whole "cp '$work/passing.json' \"\$AB_OUT/index.json\""
driver no-connection 'exit 2'
driver out-of-time "cp '$work/passing.json' \"\$AB_OUT/index.json\"; exit 3"
driver killed 'kill -KILL $$'
driver silent 'exit 0'
driver failed-early 'exit 1'

for role in server client; do
    export CONFORMANCE_OUT=$work/out CONFORMANCE_DRIVER=
    for case in whole no-connection out-of-time killed silent failed-early; do
        mkdir -p "$CONFORMANCE_OUT/$role-short"
        cp "$work/passing.json" "$CONFORMANCE_OUT/$role-short/index.json"
        status=0
        CONFORMANCE_DRIVER=$work/$case "$here/run-$role.sh" short > "$work/log" 2>&1 || status=$?
        if { [ "$case" = whole ] && [ "$status" -ne 0 ]; } || { [ "$case" != whole ] && [ "$status" -eq 0 ]; }; then
            cat "$work/log" >&2
            echo "conformance: run-$role.sh ended with status $status where the driver is '$case'" >&2
            exit 1
        fi
    done
done
echo 'conformance: a broken driver fails both runs'
