"""Compares what Autobahn found with expected.json. Better than expected fails as well: the file is to be brought up to date."""

import json
from pathlib import Path

APPLICATIONS = ("tls", "h2", "workers")
EXPECTED = Path(__file__).resolve().parent / "expected.json"


def complaints(index: Path, size: str, role: str) -> tuple[int, list[str]]:
    """How many cases were run, and what is not as expected. An application answers on a thread of its own: a breach of the protocol right
    behind a message may end the connection before the message's echo. R's strings cannot contain NUL, so a text with one comes back as binary."""
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    agents = json.loads(index.read_text(encoding="utf-8"))
    if len(agents) != 1:
        return 0, [f"{len(agents)} agents in {index}"]
    cases = next(iter(agents.values()))
    wrong = []
    for case, result in cases.items():
        behaviour, close = result["behavior"], result["behaviorClose"]
        if role == "workers" and case in expected["failed_in_r"] and behaviour == "FAILED":
            continue
        allowed = {"OK"}
        if case in expected["informational"]:
            allowed = {"INFORMATIONAL"}
        if case in expected["non_strict_allowed"] or (role in APPLICATIONS and case in expected["non_strict_behind_an_application"]):
            allowed = {"OK", "NON-STRICT"}
        if behaviour not in allowed or close not in ("OK", "INFORMATIONAL"):
            wrong.append(f"{case}: {behaviour}, close {close}")
    if len(cases) != expected["cases"][size]:
        wrong.append(f"{len(cases)} cases were run of {expected['cases'][size]}")
    return len(cases), wrong
