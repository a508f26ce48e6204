"""The table of the README and the plot beside it (docs/bench.svg), from the JSON of the groups' last runs: one machine, one build, nothing that is not to be quoted.

What does not allow that is refused with the reason; the README keeps the table that it has.
"""

import json
from pathlib import Path
from statistics import median

from . import machine, plot
from .goals import MET, MET_AIM, MISSED, number
from .report import MORE_IS_BETTER
from .sampling import FAILED, MISSING, OK, SAMPLES

# The servers of R, side by side. Everything else is in the tables of the groups.
PEERS = ("rookery", "httpuv", "nanonext", "drogonR")
ROWS = (
    ("r-http", "hello-10", "requests_per_second", "hello world, 10 connections: requests/s"),
    ("r-http", "hello-100", "requests_per_second", "hello world, 100 connections: requests/s"),
    ("r-http", "hello-close-10", "requests_per_second", "hello world, `Connection: close`, 10 clients: requests/s"),
    ("r-http", "hello-close-100", "requests_per_second", "hello world, `Connection: close`, 100 clients: requests/s"),
    ("r-http", "post-small", "requests_per_second", "POST of 1 byte, 10 connections: requests/s"),
    ("r-http", "post-1mb", "requests_per_second", "POST of 1 MB, 10 connections: requests/s"),
    ("r-http", "static-10k", "requests_per_second", "static file of 10 KB, 10 connections: requests/s"),
    ("r-websocket", "echo-64-10", "messages_per_second", "WebSocket echo of 64 B, 10 connections: messages/s"),
    ("r-websocket", "echo-64-100", "messages_per_second", "WebSocket echo of 64 B, 100 connections: messages/s"),
    ("r-websocket", "idle", "bytes_per_connection", "memory of an idle WebSocket: bytes"),
    ("startup", "cold", "first_answer_ms", "from the start of R to the first answer: ms"),
)
# Where httpuv stalls: answers with a body on a connection that is kept alive. (At 1 MB it is the processor that it lacks.)
STALLED = ("hello-10", "hello-100", "post-small", "static-10k")
STALL = (
    "\\* Mostly a stall and not work: httpuv writes head and body apart, and on a connection that is kept alive the body waits "
    "for the client's delayed acknowledgement of the head, 44 ms. The rows with `Connection: close` are without it."
)
GROUPS = tuple(dict.fromkeys(row[0] for row in ROWS))
# What must be the same in all groups of a table.
SAME = ("commit", "build", "processor", "cores", "memory", "kernel", "R")
PLOT = Path("docs") / "bench.svg"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


def put_into(path: Path, folder: Path) -> None:
    """Replaces what stands between the two marks in `path` by the table, and the plot under docs beside it.

    Raises ValueError where that is refused.
    """
    text = path.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise ValueError(f"{path} has no lines {BEGIN} and {END}")
    results = {}
    for name in GROUPS:
        if not (folder / f"{name}.json").exists():
            raise ValueError(f"{folder} has no results of {name}: run `make bench GROUP={name}` first")
        results[name] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    reasons = refusals(results)
    if reasons:
        raise ValueError("\n".join([f"{path} is left as it is:", *(f"- {reason}" for reason in reasons)]))
    head, rest = text.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    path.write_text(f"{head}{BEGIN}\n{table(results)}{END}{tail}", encoding="utf-8")
    (path.parent / PLOT).parent.mkdir(exist_ok=True)
    (path.parent / PLOT).write_text(picture(results), encoding="utf-8")


def refusals(results: dict[str, dict]) -> list[str]:
    """Why these results make no table; empty where they do."""
    reasons = []
    for name, result in results.items():
        if result["quick"]:
            reasons.append(f"{name}: short samples (QUICK=1)")
        if result["others"] > machine.QUIET:
            reasons.append(f"{name}: other programs used {result['others']:.0%} of the machine")
        if "commit" not in result["machine"]:
            reasons.append(f"{name}: measured outside a clone, so at no commit")
        elif result["machine"]["commit"].endswith("+"):
            reasons.append(f"{name}: measured with changes that are not committed")
        for scenario, peer, reason in _failed(name, result):
            reasons.append(f"{name}: {peer} FAILED in {scenario}: {reason}")
        measured = {scenario["name"] for scenario in result["scenarios"]}
        absent = [row[1] for row in ROWS if row[0] == name and row[1] not in measured]
        if absent:
            reasons.append(f"{name}: left out of the run: {', '.join(absent)}")
    for what in SAME:
        values = {name: result["machine"].get(what, "unknown") for name, result in results.items()}
        if len(set(values.values())) > 1:
            reasons.append(f"not of one {what}: {', '.join(f'{name} {value}' for name, value in values.items())}")
    return reasons


def _cells(result: dict, scenario: str) -> dict[str, dict]:
    found = [measured["cells"] for measured in result["scenarios"] if measured["name"] == scenario]
    return {cell["peer"]: cell for cell in found[0]} if found else {}


def _failed(group: str, result: dict) -> list[tuple[str, str, str]]:
    shown = [row[1] for row in ROWS if row[0] == group]
    return [
        (scenario, peer, cell.get("reason", ""))
        for scenario in shown
        for peer, cell in _cells(result, scenario).items()
        if cell["status"] == FAILED
    ]


def table(results: dict[str, dict]) -> str:
    lines = ["| | " + " | ".join(PEERS) + " |", "|---" * (len(PEERS) + 1) + "|"]
    missing: dict[str, None] = {}
    for group, scenario, metric, label in ROWS:
        cells = _cells(results[group], scenario)
        missing.update({peer: None for peer in PEERS if cells.get(peer, {}).get("status") == MISSING})
        fields = [_short(cells, peer, metric) for peer in PEERS]
        if scenario in STALLED and cells.get("httpuv", {}).get("status") == OK:
            fields[PEERS.index("httpuv")] += " \\*"
        lines.append(f"| {label} | " + " | ".join(fields) + " |")
    lines += ["", STALL, ""]
    if missing:
        lines += [f"Not installed here: {', '.join(missing)} (`make peers` installs what can be).", ""]
    lines += [_remark(results), ""]
    return "\n".join(lines)


def picture(results: dict[str, dict]) -> str:
    """The rows of the table whose figures are rates."""
    rows = []
    for group, scenario, metric, label in ROWS:
        if metric in MORE_IS_BETTER:
            cells = _cells(results[group], scenario)
            figures = [cells.get(peer, {}).get("median", {}).get(metric) or 0.0 for peer in PEERS]
            texts = [_short(cells, peer, metric).partition(" (")[0] for peer in PEERS]
            if scenario in STALLED:
                texts[PEERS.index("httpuv")] += " *"
            rows.append((label.rpartition(": ")[0].replace("`", ""), list(zip(figures, texts))))
    about = next(iter(results.values()))
    subtitles = [
        f"Requests or messages per second, each row to its own scale; {about['when'][:10]}, commit {about['machine']['commit']}.",
        "* mostly a stall: the body waits for the acknowledgement of its head.",
    ]
    return plot.overview("Rookery beside other servers of R", subtitles, PEERS, rows)


def _short(cells: dict[str, dict], peer: str, metric: str) -> str:
    """A median, and for a rate how many times it is ours, taken turn by turn."""
    cell = cells.get(peer, {"status": "-"})
    if cell["status"] != OK:
        return "not here" if cell["status"] == MISSING else cell["status"]
    figure = cell["median"].get(metric)
    turns = [float(turn) for turn in cell.get("ratio_of_ours", {}).get("turns", [])]
    times = f" (x {number(median(turns))})" if turns and metric in MORE_IS_BETTER else ""
    return "-" if figure is None else number(figure) + times


def _remark(results: dict[str, dict]) -> str:
    """Where, when and of what: everything that a figure depends on and that the run wrote down."""
    about = {name: text for result in results.values() for name, text in result["machine"].items()}
    goals = [goal for result in results.values() for goal in result["goals"]]
    met = sum(goal["status"] in (MET, MET_AIM) for goal in goals)
    missed = [f"{goal['scenario']} against {goal['against'] or goal.get('beside') or 'its bound'}" for goal in goals if goal["status"] == MISSED]
    days = sorted({result["when"][:10] for result in results.values()})
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    versions = [f"{peer} {about[f'peer {peer}']}" for peer in PEERS if f"peer {peer}" in about]
    r_version = about.get("R", "").removeprefix("Rscript (R) version ").split(" ")[0]
    return (
        "In brackets: how many times that Rookery does, taken turn by turn. "
        f"{about['processor']}, {about['cores']} cores, {about['memory']}, Linux {about['kernel']}, R {r_version}; "
        f"{'; '.join(versions)}. Measured on {when} at commit {about['commit']}, all rows with one "
        f"build: medians of {SAMPLES} interleaved samples, server and load generator on one machine, hello world as the "
        "kernel places them and the rest on one core each. "
        f"Of the {len(goals)} floors of {', '.join(results)}, {met} are met"
        + (f"; missed: {', '.join(missed)}." if missed else ".")
    )
