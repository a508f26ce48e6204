"""The table of the README and its plot (docs/pictures/bench.svg), made from the JSON of the groups' last runs.

All results have to be of one machine and one build, and without load of other programs. Other
results are refused with the reason, and the README keeps its table.
"""

import functools
import json
import textwrap
from pathlib import Path
from statistics import median

from . import build, machine
from .figures import FAILED, MET, MET_AIM, MISSED, MISSING, OK, SAMPLES, number
from .report import COLUMNS, svg
from .report import table as table_of
from .scenarios import load_groups

# The servers for R in the table. All other contenders are in the tables of the groups.
CONTENDERS = ("rookery", "httpuv", "nanonext", "drogonR")
# The rows in which httpuv stalls: responses with a body on a kept-alive connection. (At 1 MB the
# processor is its limit.)
STALLED = ("hello-10", "static-10k")
STALL = (
    "\\* Mostly a stall and not work: httpuv writes head and body separately, and on a kept-alive connection the body waits "
    "44 ms for the client's delayed acknowledgement of the head. The row with `Connection: close` is not affected."
)
# The values that must be the same in all groups of a table.
SAME = ("commit", "build", "processor", "cores", "memory", "kernel", "R")
# The endings of the labels of rows whose figures are rates.
RATE = "/s"
NOT_HERE = "not here"
PLOT = Path("docs") / "pictures" / "bench.svg"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


@functools.cache
def shown() -> dict[str, dict[str, str]]:
    """Returns the scenarios of the table with the labels of their rows, by group."""
    groups = load_groups(build.SCENARIOS).values()
    labels = {group.name: {one.name: one.readme for one in group.scenarios if one.readme} for group in groups}
    return {name: rows for name, rows in labels.items() if rows}


def put_into(path: Path, folder: Path) -> None:
    """Replaces the text between the two marks in `path` by the table, and writes the plot beside it in
    docs. Raises ValueError with the reason if the results cannot be used.
    """
    text = path.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise ValueError(f"{path} has no lines {BEGIN} and {END}")
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    results = {}
    for name in shown():
        if not (folder / f"{name}.json").exists():
            raise ValueError(f"{folder} has no results of {name}: run `make bench GROUP={name}` first")
        results[name] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    if reasons := refusals(results):
        raise ValueError("\n".join([f"{path} is left as it is:", *(f"- {reason}" for reason in reasons)]))
    path.write_text(f"{head}{BEGIN}\n{table(results)}{END}{tail}", encoding="utf-8")
    (path.parent / PLOT).parent.mkdir(parents=True, exist_ok=True)
    (path.parent / PLOT).write_text(picture(results), encoding="utf-8")


def refusals(results: dict[str, dict]) -> list[str]:
    """Returns the reasons for which these results make no table."""
    reasons = []
    for name, result in results.items():
        commit = result["machine"].get("commit")
        if result["quick"]:
            reasons.append(f"{name}: short samples (QUICK=1)")
        if result["others"] > machine.QUIET:
            reasons.append(f"{name}: other programs used {result['others']:.0%} of the machine")
        if commit is None:
            reasons.append(f"{name}: measured outside a clone, so at no commit")
        elif commit.endswith("+"):
            reasons.append(f"{name}: measured with changes that are not committed")
        cells = {scenario: _cells(result, scenario) for scenario in shown()[name]}
        reasons += [f"{name}: left out of the run: {scenario}" for scenario, row in cells.items() if not row]
        for scenario, row in cells.items():
            failed = {contender: cell.get("reason") for contender, cell in row.items() if cell["status"] == FAILED}
            reasons += [f"{name}: {contender} FAILED in {scenario}: {reason}" for contender, reason in failed.items()]
    for what in SAME:
        values = {name: result["machine"].get(what, "unknown") for name, result in results.items()}
        if len(set(values.values())) > 1:
            reasons.append(f"not of one {what}: {', '.join(f'{name} {value}' for name, value in values.items())}")
    return reasons


def _cells(result: dict, scenario: str) -> dict[str, dict]:
    """Returns the cells of a scenario by contender."""
    return {cell["contender"]: cell for one in result["scenarios"] if one["name"] == scenario for cell in one["cells"]}


def rows(results: dict[str, dict]) -> list[tuple[str, list[tuple[str, str, str, float]]]]:
    """Returns the label of each row, and for each contender the median as text, our rate as a multiple
    of it, the mark of a stall, and the median itself.
    """
    found = []
    for group, labels in shown().items():
        for scenario, label in labels.items():
            cells, figures = _cells(results[group], scenario), []
            for contender in CONTENDERS:
                cell = cells.get(contender, {"status": "-"})
                if cell["status"] != OK:
                    figures.append((NOT_HERE if cell["status"] == MISSING else cell["status"], "", "", 0.0))
                    continue
                middle = next(cell["median"][name] for name in COLUMNS if name in cell["median"])
                turns = cell.get("ratio_of_ours", {}).get("turns", []) if label.endswith(RATE) else []
                times = f" (x {number(median(map(float, turns)))})" if turns else ""
                figures.append((number(middle), times, " *" if contender == "httpuv" and scenario in STALLED else "", middle))
            found.append((label, figures))
    return found


def table(results: dict[str, dict]) -> str:
    found = rows(results)
    texts = [[label, *(text + times + stall.replace("*", "\\*") for text, times, stall, _ in row)] for label, row in found]
    lines = [*table_of(["", *CONTENDERS], texts), "", wrapped(STALL), ""]
    missing = [contender for at, contender in enumerate(CONTENDERS) if any(row[at][0] == NOT_HERE for _, row in found)]
    if missing:
        lines += [wrapped(f"Not installed here: {', '.join(missing)} (`make contenders` installs what can be)."), ""]
    return "\n".join([*lines, wrapped(_remark(results)), ""])


def wrapped(text: str) -> str:
    """Returns a paragraph in lines of at most 80 columns, as in all Markdown of the project."""
    return textwrap.fill(text, 80, break_long_words=False, break_on_hyphens=False)


def picture(results: dict[str, dict]) -> str:
    """Returns the rows of the table whose figures are rates."""
    rates = [
        (label.rpartition(": ")[0].replace("`", ""), [(text + stall, at, None) for text, _, stall, at in row])
        for label, row in rows(results)
        if label.endswith(RATE)
    ]
    about = next(iter(results.values()))
    subtitles = [
        f"Requests or messages per second, each row to its own scale; {about['when'][:10]}, commit {about['machine']['commit']}.",
        "* mostly a stall: the body waits for the acknowledgement of its head.",
    ]
    return svg("Rookery and other servers for R", subtitles, CONTENDERS, rates)


def _remark(results: dict[str, dict]) -> str:
    """Returns the remark below the table: the place, the time and the versions of the measurement."""
    about = {name: text for result in results.values() for name, text in result["machine"].items()}
    goals = [goal for result in results.values() for goal in result["goals"]]
    met = sum(goal["status"] in (MET, MET_AIM) for goal in goals)
    missed = [
        f"{goal['scenario']} against {goal['against'] or goal['beside'] or 'its bound'}"
        for goal in goals
        if goal["status"] == MISSED
    ]
    days = sorted({result["when"][:10] for result in results.values()})
    versions = [f"{contender} {about[f'contender {contender}']}" for contender in CONTENDERS if f"contender {contender}" in about]
    r_version = about["R"].removeprefix("Rscript (R) version ").split(" ")[0]
    return (
        "The value in brackets is Rookery's rate divided by that of the column's server. Rates are medians of "
        f"{SAMPLES} samples; the servers ran in turn. Measured on {' to '.join(dict.fromkeys((days[0], days[-1])))} "
        f"at commit {about['commit']}, with server and load generator on one machine. For hello world, the "
        "kernel chose the cores of the two; otherwise, each had its own core. Machine and versions: "
        f"{about['processor']}, {about['cores']} cores, {about['memory']}, Linux {about['kernel']}, R {r_version}; "
        f"{'; '.join(versions)}. The project promises {len(goals)} values "
        f"(floors) for {', '.join(results)}, of which {met} are met"
        + (f"; missed: {', '.join(missed)}." if missed else ".")
    )
