"""Tests of the runner's judgement: python3 -m unittest discover -s bench/tests"""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runner import flame, gate, goals, groups, peers, plot, readme, report, websocket, wrk  # noqa: E402
from runner.allocations import _size  # noqa: E402
from runner.plan import Options  # noqa: E402
from runner.sampling import FAILED, MISSING, Cell, interleave, pairwise, ratio  # noqa: E402
from runner.scenarios import Scenario, ScenarioError, group_names, load_group  # noqa: E402
from soak import run as soak  # noqa: E402

SCENARIOS = Path(__file__).resolve().parent.parent / "scenarios"

TEXT = '''
kind = "http"
scenarios = """
name  | peers
hello | rookery httpuv
"""
goals = """
scenario | metric              | kind   | against   | floor   | aim
hello    | requests_per_second | {kind} | {against} | {floor} | {aim}
"""
'''


def group_of(text: str):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r-http.toml"
        path.write_text(text, encoding="utf-8")
        return load_group(path)


def cell_of(peer: str, *rates: float) -> Cell:
    return Cell("hello", peer, samples=[{"requests_per_second": rate, "p50_us": 1e6 / rate} for rate in rates])


class Scenarios(unittest.TestCase):
    def test_every_file_of_the_tree_loads(self):
        names = group_names(SCENARIOS)
        self.assertIn("r-http", names)
        for name in names:
            group = load_group(SCENARIOS / f"{name}.toml")
            self.assertTrue(group.scenarios, name)

    def test_a_goal_for_a_peer_that_is_not_there_is_refused(self):
        with self.assertRaisesRegex(ScenarioError, "nginx"):
            group_of(TEXT.format(kind="ratio_min", against="nginx", floor=1, aim=2))

    def test_an_unknown_kind_of_goal_is_refused(self):
        with self.assertRaisesRegex(ScenarioError, "ratio_mean"):
            group_of(TEXT.format(kind="ratio_mean", against="httpuv", floor=1, aim=2))

    def test_a_misspelt_key_is_refused(self):
        text = TEXT.format(kind="ratio_min", against="httpuv", floor=1, aim=2).replace("floor", "flour")
        with self.assertRaisesRegex(ScenarioError, "flour"):
            group_of(text)


class Tables(unittest.TestCase):
    TEXT = '''
kind = "http"
peers.both = ["rookery", "httpuv"]
defaults = { connections = 10, seconds = 1.0 }
scenarios = """
name      | peers          | seconds | quick | with                                       | what
# no row
a-1       | both           |         | false | send = { Connection = "close" }, idle = true | A, "quoted".
a-2       | rookery hyper  | 2.5     |       | connections = 3                            |
b         | both           |         |       |                                            | B.
"""
goals = """
scenario | metric | kind      | against | floor | source
a*       | x y    | max       |         | 1     | issue 2: in words
b a-1    | x      | ratio_min | httpuv  | 0.5   |
"""
'''

    def test_a_row_is_a_scenario_over_the_defaults(self):
        first, second, third = group_of(self.TEXT).scenarios
        self.assertEqual((first.peers, first.seconds, first.connections, first.quick), (["rookery", "httpuv"], 1.0, 10, False))
        self.assertEqual((first.send, first.extra, first.what), ({"Connection": "close"}, {"idle": True}, 'A, "quoted".'))
        self.assertEqual((second.peers, second.seconds, second.connections, second.what), (["rookery", "hyper"], 2.5, 3, ""))
        self.assertEqual((third.quick, third.extra), (True, {}))

    def test_a_row_is_a_goal_of_each_scenario_and_metric(self):
        found = [(goal.scenario, goal.metric, goal.against, goal.floor, goal.source) for goal in group_of(self.TEXT).goals]
        expected = [(name, metric, None, 1.0, "issue 2: in words") for name in ("a-1", "a-2") for metric in "xy"]
        self.assertEqual(found, [*expected, ("b", "x", "httpuv", 0.5, ""), ("a-1", "x", "httpuv", 0.5, "")])

    def test_what_fits_nothing_is_refused(self):
        for was, now, said in (("b a-1", "c*", "c\\*"), ("b         |", "b | c | 1 | | | | x |", "more cells"), ("peers.", "piers.", "piers")):
            with self.subTest(now), self.assertRaisesRegex(ScenarioError, said):
                group_of(self.TEXT.replace(was, now))


class Groups(unittest.TestCase):
    def test_every_scenario_of_the_tree_is_measured_in_its_way(self):
        # The real signatures: a group that calls one as it was before is caught here and not in a run of half an hour.
        ways = {name: mock.create_autospec(function) for name, function in groups.WAYS.items()}
        options = Options(quick=False, placement="free", only=[], only_peers=[], say=lambda _: None)
        for name in group_names(SCENARIOS):
            group = load_group(SCENARIOS / f"{name}.toml")
            with (
                mock.patch.object(groups, "prepare", return_value={}),
                mock.patch.object(groups, "_binaries"),
                mock.patch.object(groups.wrk, "is_here", return_value=True),
                mock.patch.object(groups.http_group, "measure", autospec=True) as load,
                mock.patch.object(groups.micro_group, "measure", autospec=True, return_value=[]) as micro,
                mock.patch.dict(groups.WAYS, ways),
            ):
                cells = groups.run(group, options, lambda: False)
            served = {cell.scenario for cell in cells} | {call.args[0].name for call in micro.call_args_list}
            self.assertEqual(served, {scenario.name for scenario in group.scenarios}, name)
            for call in load.call_args_list:
                self.assertTrue(all(isinstance(row, groups.http_group.Row) for row in call.args[0]))


class Ratios(unittest.TestCase):
    def test_ratios_are_taken_turn_by_turn(self):
        # The machine slows to a tenth in the second turn: the medians' ratio would be 20, each turn's is 2.
        ours, other = cell_of("rookery", 2000, 200, 200), cell_of("httpuv", 1000, 100, 100)
        self.assertEqual(pairwise(ours, other, "requests_per_second", ratio), [2, 2, 2])

    def test_nothing_against_nothing_is_as_much(self):
        self.assertEqual(ratio(0, 0), 1)
        self.assertEqual(ratio(1, 0), float("inf"))

    def test_a_missing_peer_gives_no_ratio(self):
        other = Cell("hello", "httpuv", status=MISSING)
        self.assertEqual(pairwise(cell_of("rookery", 1), other, "requests_per_second", ratio), [])

    def test_samples_are_interleaved_and_a_failure_ends_its_cell_only(self):
        order = []
        row = [Cell("hello", "a"), Cell("hello", "b")]

        def take(cell: Cell) -> dict[str, float]:
            order.append(cell.peer)
            if cell.peer == "b" and order.count("b") == 2:
                raise RuntimeError("gone")
            return {"requests_per_second": 1.0}

        interleave(row, take, samples=3)
        self.assertEqual(order, ["a", "b", "a", "b", "a"])
        self.assertEqual((row[0].status, row[1].status, row[1].reason), ("ok", FAILED, "gone"))


class Goals(unittest.TestCase):
    def judge(self, floor: float, aim: float, *cells: Cell, kind: str = "ratio_min"):
        group = group_of(TEXT.format(kind=kind, against="httpuv", floor=floor, aim=aim))
        return goals.judge(group, list(cells), {"hello"})[0]

    def test_floor_and_aim(self):
        cells = cell_of("rookery", 200, 300, 250), cell_of("httpuv", 100, 100, 100)
        self.assertEqual(self.judge(3, 4, *cells).status, goals.MISSED)
        self.assertEqual(self.judge(2, 4, *cells).status, goals.MET)
        self.assertEqual(self.judge(2, 2.5, *cells).status, goals.MET_AIM)
        self.assertEqual(self.judge(2.5, 2.5, *cells, kind="ratio_max").status, goals.MET_AIM)
        self.assertEqual(self.judge(2.4, 2, *cells, kind="ratio_max").status, goals.MISSED)
        self.assertEqual(self.judge(150, 0, *cells, kind="difference_max").status, goals.MET)
        self.assertEqual(self.judge(149, 0, *cells, kind="difference_max").status, goals.MISSED)

    def test_what_was_not_measured_is_not_met(self):
        verdict = self.judge(1, 2, cell_of("rookery", 1), Cell("hello", "httpuv", status=MISSING))
        self.assertEqual(verdict.status, goals.NOT_MEASURED)
        self.assertFalse(goals.all_floors_met([verdict]))
        self.assertIn("httpuv MISSING", verdict.line())

    def test_a_peer_left_out_is_not_met(self):
        self.assertEqual(self.judge(1, 2, cell_of("rookery", 1)).status, goals.NOT_MEASURED)

    def test_a_goal_beside_another_scenario(self):
        text = TEXT.replace("hello | rookery httpuv", "hello-10 | rookery\nhello | rookery").replace("against  ", "beside")
        text = text.format(kind="ratio_min", against="hello-10", floor=0.85, aim=1)
        base = cell_of("rookery", 1000, 100)
        base.scenario = "hello-10"
        cells = [base, cell_of("rookery", 900, 90)]
        verdict = goals.judge(group_of(text), cells, {"hello", "hello-10"})[0]
        self.assertEqual((verdict.status, verdict.figure), (goals.MET, 0.9))
        self.assertIn("rookery / rookery in hello-10 = 0.9", verdict.line())
        self.assertEqual(goals.judge(group_of(text), cells, {"hello"})[0].status, goals.NOT_MEASURED)
        with self.assertRaisesRegex(ScenarioError, "nowhere"):
            group_of(text.replace("ratio_min | hello-10", "ratio_min | nowhere"))

    def test_the_counting_line(self):
        cells = cell_of("rookery", 200), cell_of("httpuv", 100)
        line = goals.count_line([self.judge(1, 2, *cells), self.judge(3, 4, *cells)])
        self.assertEqual(line, "goals: 1 of 2 floors met, 1 of 2 aims met, 1 missed, 0 not measured")


class Gate(unittest.TestCase):
    STORED = {"error": {"new/ours": {"allocs_per_op": 1.0, "instructions": 100.0}}}

    def differs(self, **now: float) -> list[str]:
        return gate.compare(self.STORED, {"error": {"new/ours": now}})

    def test_what_is_stored_is_a_line_a_case(self):
        text = gate.as_text({"libc": "x"}, self.STORED)
        self.assertEqual(json.loads(text), {"libc": "x", "groups": self.STORED})
        self.assertIn('\n   "new/ours": {"allocs_per_op": 1.0, "instructions": 100.0}\n', text)

    def test_two_per_cent_of_instructions_pass(self):
        self.assertEqual(self.differs(allocs_per_op=1.0, instructions=101.9), [])
        self.assertEqual(self.differs(allocs_per_op=1.0, instructions=98.1), [])

    def test_more_and_less_both_differ(self):
        self.assertIn("worse", self.differs(allocs_per_op=1.0, instructions=102.1)[0])
        self.assertIn("--gate-write", self.differs(allocs_per_op=1.0, instructions=97.9)[0])

    def test_allocations_are_exact(self):
        self.assertEqual(len(self.differs(allocs_per_op=1.001, instructions=100.0)), 1)

    def test_no_benchmark_throws_dice(self):
        # `select!` begins at a random branch unless it is biased: echo-512 cost 4,197 to 4,340 instructions, by chance.
        for source in Path(gate.build.BENCH, "micro").rglob("*.rs"):
            for select in re.findall(r"select! *\{\s*(\w+;)?", source.read_text()):
                self.assertEqual(select, "biased;", source)

    def test_a_case_or_metric_that_comes_or_goes_differs(self):
        self.assertEqual(len(gate.compare(self.STORED, {"error": {}})), 1)
        self.assertEqual(len(gate.compare({}, self.STORED)), 1)
        self.assertEqual(len(self.differs(allocs_per_op=1.0)), 1)

    def test_instructions_of_another_compiler_are_not_compared(self):
        now = {"error": {"new/ours": {"allocs_per_op": 2.0, "instructions": 300.0}}}
        lines = gate.compare(self.STORED, now, instructions=False)
        self.assertEqual(lines, ["error new/ours allocs_per_op: 2, was 1 (worse)"])


class Reports(unittest.TestCase):
    def setUp(self):
        self.group = group_of(TEXT.format(kind="ratio_min", against="httpuv", floor=1, aim=2))
        self.cells = [cell_of("rookery", 2000, 3000), Cell("hello", "httpuv", status=MISSING, reason="no httpuv")]
        self.verdicts = goals.judge(self.group, self.cells, {"hello"})

    def options(self, others: float) -> Options:
        return Options(quick=False, placement="pinned", only=[], only_peers=[], say=print, others=others)

    def test_the_table_says_what_is_missing_and_why(self):
        text = report.markdown(self.group, self.cells, self.verdicts, {"kernel": "6"}, self.options(0.0))
        self.assertIn("| rookery | 2,500 (2,000..3,000) | 1 |", text)
        self.assertIn("| httpuv | MISSING |", text)
        self.assertIn("no httpuv", text)
        self.assertNotIn("NOT TO BE QUOTED", text)

    def test_a_noisy_machine_is_named(self):
        self.assertIn("NOT TO BE QUOTED", report.conditions(self.group, self.options(0.5)))

    def test_the_plot_has_a_bar_for_what_was_measured_only(self):
        picture = plot.svg(self.group, self.cells, "conditions & such")
        self.assertEqual(picture.count("<rect"), 2)  # the background and one bar
        self.assertIn("MISSING", picture)
        self.assertIn("conditions &amp; such", picture)


class Readme(unittest.TestCase):
    ABOUT = {
        "processor": "P", "cores": "2", "memory": "24 GiB", "kernel": "6", "commit": "abc", "build": "1",
        "R": "Rscript (R) version 4.2.2 Patched", "peer httpuv": "1.6.9, later 1.3.0",
    }  # fmt: skip

    def setUp(self):
        self.results = {}
        for name in readme.GROUPS:
            scenarios = [
                {
                    "name": scenario,
                    "cells": [
                        {"peer": "rookery", "status": "ok", "median": {metric: 2500}},
                        {"peer": "httpuv", "status": "ok", "median": {metric: 1000}, "ratio_of_ours": {"turns": [2, 3]}},
                        {"peer": "nanonext", "status": MISSING, "reason": "no nanonext"},
                    ],
                }
                for group, scenario, metric, _ in readme.ROWS
                if group == name
            ]
            goals_ = [{"scenario": "cold", "against": "httpuv", "status": goals.MISSED}] if name == "startup" else []
            self.results[name] = {
                "quick": False, "others": 0.0, "when": "2026-01-02T03:04:05Z", "goals": goals_,
                "machine": dict(self.ABOUT), "scenarios": scenarios,
            }  # fmt: skip

    def written(self) -> str:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for group, result in self.results.items():
                (folder / f"{group}.json").write_text(json.dumps(result), encoding="utf-8")
            path = folder / "README.md"
            path.write_text(f"before\n{readme.BEGIN}\nold\n{readme.END}\nafter\n", encoding="utf-8")
            try:
                readme.put_into(path, folder)
            except ValueError as error:
                self.assertIn("\nold\n", path.read_text(encoding="utf-8"))
                return str(error)
            return path.read_text(encoding="utf-8")

    def test_the_table_goes_between_its_marks_with_machine_versions_date_and_commit(self):
        text = self.written()
        self.assertIn("hello world, 10 connections: requests/s | 2,500 | 1,000 (x 2.50) \\* | not here | - |", text)
        self.assertIn("`Connection: close`, 10 clients: requests/s | 2,500 | 1,000 (x 2.50) | not here | - |", text)
        self.assertIn("\\* Mostly a stall", text)
        self.assertIn("Not installed here: nanonext", text)
        self.assertIn("P, 2 cores, 24 GiB, Linux 6, R 4.2.2; httpuv 1.6.9, later 1.3.0.", text)
        self.assertIn("Measured on 2026-01-02 at commit abc", text)
        self.assertIn("Of the 1 floors of r-http, r-websocket, startup, 0 are met; missed: cold against httpuv.", text)
        self.assertNotIn("\nold\n", text)
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n"))

    def test_the_plot_shows_the_rates_of_the_table(self):
        rates = [row for row in readme.ROWS if row[2] in report.MORE_IS_BETTER]
        picture = readme.picture(self.results)
        self.assertEqual(picture.count("<rect"), 1 + len(readme.PEERS) * (1 + len(rates)))
        self.assertEqual(picture.count(">2,500<"), len(rates))
        self.assertEqual(picture.count(">1,000 *<"), len(readme.STALLED))
        self.assertIn("2026-01-02, commit abc", picture)
        self.assertIn(">hello world, Connection: close, 10 clients<", picture)

    def test_the_plot_that_is_kept_is_of_the_table_that_is_kept(self):
        root = SCENARIOS.parent.parent
        text = (root / "README.md").read_text(encoding="utf-8")
        kept = (root / readme.PLOT).read_text(encoding="utf-8")
        self.assertIn(f"]({readme.PLOT})", text)
        for row in readme.ROWS:
            if row[2] in report.MORE_IS_BETTER:
                line = next(line for line in text.splitlines() if line.startswith(f"| {row[3]} |"))
                for cell in line.split("|")[2:-1]:
                    self.assertIn(">" + cell.partition("(")[0].replace("\\*", "").strip(), kept, line)

    def test_what_is_not_to_be_quoted_is_refused(self):
        def refused(group: str, **changes: object) -> str:
            self.setUp()
            self.results[group].update(changes)
            return self.written()

        self.assertIn("r-http: other programs used 50% of the machine", refused("r-http", others=0.5))
        self.assertIn("startup: short samples", refused("startup", quick=True))
        self.assertIn("not of one build: r-http 1, r-websocket 2", refused("r-websocket", machine={**self.ABOUT, "build": "2"}))
        self.assertIn("not committed", refused("r-http", machine={**self.ABOUT, "commit": "abc+"}))
        self.assertIn("left out of the run: cold", refused("startup", scenarios=[]))
        self.setUp()
        self.results["r-http"]["scenarios"][0]["cells"][1].update(status=FAILED, reason="gone")
        self.assertIn("httpuv FAILED in hello-10: gone", self.written())
        self.setUp()
        del self.results["startup"]
        self.assertIn("no results of startup", self.written())

    def test_every_row_is_a_scenario(self):
        for name in readme.GROUPS:
            known = {scenario.name for scenario in load_group(SCENARIOS / f"{name}.toml").scenarios}
            self.assertLessEqual({row[1] for row in readme.ROWS if row[0] == name}, known)

    def test_the_first_command_is_on_the_first_screen(self):
        # 24 lines of 120 columns
        text = (SCENARIOS.parent.parent / "README.md").read_text(encoding="utf-8").split("```", 1)[0]
        self.assertLessEqual(sum(1 + len(line) // 120 for line in text.splitlines()), 24)


class Flames(unittest.TestCase):
    PRINTED = """R  100
\t  1a2b flush+0x54 (inlined)
\t  1a2c bare_serve+0x368 (/x/bare_epoll.so)
\t  ff6c [unknown] (/usr/lib/R/lib/libR.so)
\t  ff6d [unknown] (/usr/lib/R/lib/libR.so)
\tffffffffffffffff [unknown] ([unknown])

R  100
\t  1a2c bare_serve+0x368 (/x/bare_epoll.so)
\t  ff6c [unknown] (/usr/lib/R/lib/libR.so)
"""

    def test_stacks_fold_into_a_tree(self):
        root = flame.fold(self.PRINTED)
        library = root.inner["R"].inner["[libR.so]"]
        self.assertEqual((root.samples, library.samples), (2, 2))
        self.assertEqual(library.inner["bare_serve"].inner["flush"].samples, 1)

    def test_the_picture_shows_shares(self):
        self.assertIn("<title>flush: 1 samples, 50.0%</title>", flame.svg(flame.fold(self.PRINTED), "x"))


class Soak(unittest.TestCase):
    REFERENCE = soak.Level(60, "reference", 12, 4, 100 << 20)
    COUNTS = {"get": [5, 0, ""]}

    def left(self, descriptors: int = 12, threads: int = 4, mib: int = 100, sockets: int = 0, **counts: list) -> str:
        end = soak.Level(600, "end", descriptors, threads, mib << 20)
        return "; ".join(soak.complaints(self.REFERENCE, end, sockets, counts or self.COUNTS))

    def test_nothing_left_passes(self):
        self.assertEqual(self.left(), "")
        self.assertEqual(self.left(descriptors=11, threads=3, mib=111), "")

    def test_what_is_left_is_named(self):
        self.assertEqual(self.left(descriptors=13), "descriptors: +1 since the reference, at most +0")
        self.assertEqual(self.left(threads=5), "threads: +1 since the reference, at most +0")
        self.assertEqual(self.left(mib=113), "rss: +13 MiB since the reference, at most +12")
        self.assertIn("2 open WebSockets", self.left(sockets=2))

    def test_an_honest_client_that_was_not_served_is_named(self):
        self.assertEqual(self.left(get=[5, 1, "reset"]), "get: 1 of 6 failed, the first with reset")
        self.assertEqual(self.left(get=[0, 0, ""]), "get: not one was done")

    def test_frames_are_masked_and_measured(self):
        for size, head in ((5, 2), (126, 4), (70_000, 10)):
            payload = bytes(i % 251 for i in range(size))
            frame = websocket.frame(2, payload)
            key, masked = frame[head : head + 4], frame[head + 4 :]
            self.assertEqual(bytes(byte ^ key[i % 4] for i, byte in enumerate(masked)), payload)


class Neighbours(unittest.TestCase):
    def test_every_row_stands_beside_the_base_and_the_other_peer(self):
        text = 'kind = "http"\nbase = "hello"\ndefaults.peers = ["rookery", "httpuv"]\nscenarios = """\nname\nhello\npost\n"""'
        cells = []
        for scenario, peer, rate, cost in (
            ("hello", "rookery", 2000, 10),
            ("hello", "httpuv", 100, 50),
            ("post", "rookery", 500, 40),
            ("post", "httpuv", 250, 80),
        ):
            sample = {"requests_per_second": rate, "cpu_us_per_request": cost}
            cells.append(Cell(scenario, peer, samples=[sample, sample]))
        options = Options(quick=False, placement="pinned", only=[], only_peers=[], say=print)
        table = report.markdown(group_of(text), cells, [], {}, options).split("### Beside hello")[1]
        self.assertIn("| post | 500 | 0.25 | 40.0 | 4.00 | 2.00 | 80.0 | 0.5 |", table)

    def test_an_unknown_base_is_refused(self):
        with self.assertRaisesRegex(ScenarioError, "hullo"):
            group_of('base = "hullo"\n' + TEXT.format(kind="ratio_min", against="httpuv", floor=1, aim=2))


class Wrk(unittest.TestCase):
    def test_a_load_that_does_not_end_fails_its_cell_and_not_the_run(self):
        server = mock.create_autospec(peers.Server, instance=True, port=1)
        server.cpu_seconds.return_value = 0.0
        row = [Cell("hello", "httpuv")]
        with mock.patch("runner.machine.subprocess.run", side_effect=subprocess.TimeoutExpired("wrk", 1)):
            interleave(row, lambda _: wrk.run(server, Scenario("hello", "", ["httpuv"]), 1, "free"))
        self.assertEqual((row[0].status, row[0].reason[:15]), (FAILED, "wrk did not end"))


class Answers(unittest.TestCase):
    def test_the_length_of_an_answer(self):
        self.assertIsNone(_size(b"HTTP/1.1 200 OK\r\nContent-"))
        self.assertEqual(_size(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"), 41)


if __name__ == "__main__":
    unittest.main()
