#!/usr/bin/env python3
"""Compares what Autobahn found with expected.json: judge.py INDEX_JSON short|full

Better than expected fails as well: the file is to be brought up to date.
"""

import json
import sys
from pathlib import Path


def main() -> int:
    index, size = Path(sys.argv[1]), sys.argv[2]
    expected = json.loads((Path(__file__).parent / "expected.json").read_text(encoding="utf-8"))
    agents = json.loads(index.read_text(encoding="utf-8"))
    if len(agents) != 1:
        print(f"judge: {len(agents)} agents in {index}")
        return 1
    cases = next(iter(agents.values()))
    wrong = []
    for case, result in cases.items():
        behaviour, close = result["behavior"], result["behaviorClose"]
        allowed = {"OK"}
        if case in expected["informational"]:
            allowed = {"INFORMATIONAL"}
        if case in expected["non_strict_allowed"]:
            allowed = {"OK", "NON-STRICT"}
        if behaviour not in allowed or close not in ("OK", "INFORMATIONAL"):
            wrong.append(f"{case}: {behaviour}, close {close}")
    if len(cases) != expected["cases"][size]:
        wrong.append(f"{len(cases)} cases were run of {expected['cases'][size]}")
    for line in wrong:
        print(f"judge: {line}")
    print(f"judge: {len(cases)} cases, {len(wrong)} not as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
