"""Tests of the runner: python3 -m unittest discover -s bench/tests"""

import copy
import http.server
import itertools
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from unittest import mock

BENCH = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BENCH))

from runner import contenders, figures, gate, groups, machine, readme  # noqa: E402
from runner.figures import FAILED, MISSING, Cell, Missing, interleave, pairwise, ratio  # noqa: E402
from runner.measure import flame_graph, load_generators, observe  # noqa: E402
from runner.report import Report  # noqa: E402
from runner.scenarios import Group, Scenario, load_group, load_groups  # noqa: E402
from soak import run as soak  # noqa: E402
from soak import websocket  # noqa: E402

GROUPS = load_groups(BENCH / "scenarios")
RATE = "requests_per_second"
TEXT = '''
kind = "http"
contenders.both = ["rookery", "httpuv"]
defaults = { connections = 10, seconds = 1.0 }
scenarios = """
name  | contenders          | seconds | quick | with                             | what
# no row
hello | both           |         | false | send = { Connection = "close" }  | A, "quoted".
help  | rookery hyper  | 2.5     |       | connections = 3                  |
post  | both           |         |       |                                  | B.
"""
goals = """
scenario | metric              | kind      | against | floor | aim | source
hello    | requests_per_second | ratio_min | httpuv  | 1     | 2   | issue 2: in words
he*      | x y                 | max       |         | 1     |     |
"""
'''


def group_of(text: str) -> Group:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r-http.toml"
        path.write_text(text, encoding="utf-8")
        return load_group(path)


def cell_of(contender: str, *rates: float, scenario: str = "hello") -> Cell:
    return Cell(scenario, contender, figures={RATE: list(rates), "cpu_us_per_request": [1e6 / rate for rate in rates]})


ABSENT = Cell("hello", "httpuv", MISSING, "no httpuv")


class Scenarios(unittest.TestCase):
    def test_a_row_is_a_scenario_over_the_defaults(self):
        first, second, third = group_of(TEXT).scenarios
        self.assertEqual((first.contenders, first.seconds, first.connections), (["rookery", "httpuv"], 1.0, 10))
        self.assertEqual((first.quick, first.send, first.what), (False, {"Connection": "close"}, 'A, "quoted".'))
        self.assertEqual((second.contenders, second.seconds, second.connections), (["rookery", "hyper"], 2.5, 3))
        self.assertEqual((third.quick, third.send, second.what), (True, {}, ""))

    def test_a_row_is_a_goal_of_each_scenario_and_metric(self):
        first, *others = group_of(TEXT).goals
        self.assertEqual((first.against, first.floor, first.aim, first.source), ("httpuv", 1.0, 2.0, "issue 2: in words"))
        found = [(goal.scenario, goal.metric, goal.against, goal.aim) for goal in others]
        self.assertEqual(found, [(name, metric, None, None) for name in ("hello", "help") for metric in "xy"])

    def test_what_fits_nothing_is_refused(self):
        for was, now, said in (
            ("he*", "c*", "c\\*"),
            ("post  |", "post | a | 1 | | | | x |", "more cells"),
            ("contenders.", "piers.", "piers"),
            ("floor", "flour", "flour"),
            ("quick", "quack", "quack"),
            ("ratio_min", "ratio_mean", "ratio_mean"),
            ("| httpuv  |", "| nginx  |", "nginx"),
            ("defaults", 'base = "hullo"\ndefaults', "hullo"),
            ("help ", "hello", "two scenarios"),
        ):
            with self.subTest(now), self.assertRaisesRegex(ValueError, said):
                group_of(TEXT.replace(was, now))

    def test_every_scenario_of_the_tree_is_measured_in_its_way(self):
        # The real signatures, so that a call with wrong arguments fails here and not in a run of
        # half an hour.
        asked = Namespace(quick=False, placement="free", scenario=[], contender=[], flame=False, before=None)
        samples = {name: mock.create_autospec(way.sample, return_value={}) for name, way in groups.WAYS.items()}
        ways = {name: replace(way, sample=samples[name], variables=dict) for name, way in groups.WAYS.items()}
        server = mock.create_autospec(contenders.Server, instance=True)
        server.memory_bytes.return_value = 1
        for name, group in GROUPS.items():
            with (
                mock.patch.dict(groups.WAYS, ways),
                mock.patch.multiple(groups, _absent=mock.DEFAULT, own_network=mock.DEFAULT, log=mock.DEFAULT) as parts,
                mock.patch.object(groups.micro, "built", autospec=True, return_value=({}, "")),
                mock.patch.object(groups.micro, "measure", autospec=True, return_value=[]) as micro,
                mock.patch.object(groups.flame_graph, "record", autospec=True, return_value=""),
                mock.patch.object(groups.load_generators, "check", autospec=True),
                mock.patch.object(groups.Servers, "get", autospec=True, return_value=server),
            ):
                parts["_absent"].return_value = {}
                asked.out = Path()
                cells = groups.run(group, asked)
            self.assertEqual({cell.status for cell in cells} - {"ok"}, set(), [cell.reason for cell in cells])
            served = {cell.scenario for cell in cells} | {call.args[0].name for call in micro.call_args_list}
            self.assertEqual(served, {scenario.name for scenario in group.scenarios}, name)


class Ratios(unittest.TestCase):
    def test_ratios_are_taken_turn_by_turn(self):
        # The machine slows to a tenth in the second turn: the ratio of the medians would be 20, and
        # that of each turn is 2.
        ours, other = cell_of("rookery", 2000, 200, 200), cell_of("httpuv", 1000, 100, 100)
        self.assertEqual(pairwise(ours, other, RATE), [2, 2, 2])
        self.assertEqual(pairwise(ours, cell_of("httpuv", 100), RATE), [20, 2, 2])
        self.assertEqual(pairwise(ours, ABSENT, RATE), [])

    def test_nothing_against_nothing_is_as_much(self):
        self.assertEqual((ratio(0, 0), ratio(1, 0)), (1, float("inf")))

    def test_samples_are_interleaved_and_a_failure_ends_its_cell_only(self):
        order = []
        row = [Cell("hello", contender) for contender in "abc"]

        def take(contender: str) -> dict[str, float]:
            order.append(contender)
            if contender == "c":
                raise Missing("never here")
            if contender == "b" and order.count("b") == 2:
                raise RuntimeError("gone")
            return {RATE: 1.0}

        interleave([(cell, lambda contender=cell.contender: take(contender)) for cell in row], samples=3)
        self.assertEqual("".join(order), "abcaba")
        found = [(cell.status, cell.reason) for cell in row]
        self.assertEqual(found, [("ok", ""), (FAILED, "gone"), (MISSING, "never here")])

    def test_a_load_that_does_not_end_fails_its_cell_and_not_the_run(self):
        server = mock.create_autospec(contenders.Server, instance=True, port=1)
        server.cpu_seconds.return_value = 0.0
        cell = Cell("hello", "httpuv")
        with mock.patch("runner.machine.subprocess.run", side_effect=subprocess.TimeoutExpired("wrk", 1)):
            with mock.patch("runner.measure.load_generators.shutil.which"), cell.attempt():
                load_generators.http(server, Scenario("hello", "", ["httpuv"], "http"), 1)
        self.assertEqual((cell.status, cell.reason[:15]), (FAILED, "wrk did not end"))


class Tls(unittest.TestCase):
    PRINTED = """Application protocol: h2

finished in 1.01s, 13877.50 req/s, 529.70KB/s
requests: 13977 total, 13977 started, 13877 done, 13877 succeeded, 0 failed, 0 errored, 0 timeout
"""

    def test_the_name_of_a_contender_gives_its_protocol(self):
        for contender, *spoken in (("rookery", "http"), ("rookery/evalq", "http"), ("nginx/tls", "https", "tls"), ("rookery/h2", "https", "h2")):
            server = contenders.Server(contender, 1, mock.Mock(), Path())
            self.assertEqual([server.scheme, *server.protocols], spoken, contender)

    def test_h2load_is_believed_only_of_the_protocol_that_was_asked_for(self):
        found = load_generators._of_h2load(self.PRINTED, 0.13877, "h2")
        self.assertEqual({name: round(value, 6) for name, value in found.items()}, {RATE: 13877.5, "cpu_us_per_request": 10})
        plain = self.PRINTED.replace("Application protocol: h2", "")
        self.assertEqual(load_generators._of_h2load(plain, 1, "http/1.1")[RATE], 13877.5)
        for printed, protocol, said in (
            (self.PRINTED, "http/1.1", "spoke h2, not http/1.1"),
            (plain, "h2", "spoke None, not h2"),
            (self.PRINTED.replace("finished", "aborted"), "h2", "said nothing"),
            (self.PRINTED.replace("13877 succeeded, 0 failed", "13777 succeeded, 100 failed"), "h2", "100 of 13877"),
            (self.PRINTED.replace("13877 done, 13877 succ", "0 done, 0 succ"), "h2", "0 of 0 requests failed"),
        ):
            with self.subTest(said), self.assertRaisesRegex(RuntimeError, said):
                load_generators._of_h2load(printed, 1, protocol)

    def test_h2load_asks_who_lacks_http2_on_as_many_connections(self):
        scenario = Scenario("h2", "", [], "h2", connections=10, streams=20, placement="free")
        for contender, how in (("rookery/h2", ["-c10", "-m20"]), ("nanonext/tls", ["--h1", "-c200"])):
            printed = self.PRINTED if contender == "rookery/h2" else self.PRINTED.replace("h2", "http/1.1")
            with mock.patch.object(load_generators, "sample", return_value=(printed, 1.0)) as sample, mock.patch("runner.measure.load_generators.shutil.which"):
                load_generators.h2(contenders.Server(contender, 1, mock.Mock(), Path()), scenario, 1.0)
            self.assertEqual(sample.call_args.args[0][2:-2], how)

    def test_handshakes_are_counted_by_the_servers_own_time(self):
        server, scenario = contenders.Server("rookery/tls", 1, mock.Mock(), Path()), Scenario("handshakes", "", [], "handshakes")
        printed = '{"handshakes": 1000, "seconds": 2.0, "errors": %d}'
        for errors, spent in ((0, 0.25), (1, 0.25)):
            sampled = mock.patch.object(load_generators, "sample", return_value=(printed % errors, spent))
            with sampled, mock.patch.object(load_generators.build, "c_program", return_value="handshakes"):
                if errors:
                    self.assertRaisesRegex(RuntimeError, "1 errors", load_generators.handshakes, server, scenario, 2.0)
                else:
                    found = load_generators.handshakes(server, scenario, 2.0)
                    self.assertEqual(found, {"handshakes_per_second": 500, "handshakes_per_cpu_second": 4000})

    def test_what_stands_behind_a_proxy_counts(self):
        with subprocess.Popen(["sh", "-c", "sleep 60 & echo; wait"], stdout=subprocess.PIPE, text=True) as process:
            process.stdout.readline()
            server = contenders.Server("nginx/tls", 1, process, Path())
            own, child = server._processes()
            both, alone = server.memory_bytes("VmRSS"), int(machine.proc_field(f"/proc/{own}/status", "VmRSS").split()[0]) * 1024
            subprocess.run(["kill", child, own], check=True)
        self.assertGreater(both, alone)

    def test_without_nginx_its_cells_say_so(self):
        with mock.patch.object(contenders.shutil, "which", return_value=None), mock.patch.object(contenders.build, "certificate"):
            self.assertRaisesRegex(Missing, "nginx is not installed", contenders.command, "nginx/h2", 1, "hello")


class Goals(unittest.TestCase):
    def judge(self, kind: str, floor: float, aim: float, *cells: Cell, against: str = "httpuv", text: str = TEXT):
        goal = f"{kind} | {against} | {floor} | {aim} | issue 2"
        return figures.judge(group_of(text.replace("ratio_min | httpuv  | 1     | 2   | issue 2", goal)), list(cells))[0]

    def test_floor_and_aim(self):
        cells = cell_of("rookery", 200, 300, 250), cell_of("httpuv", 100, 100, 100)
        for kind, floor, aim, status in (
            ("ratio_min", 3, 4, figures.MISSED),
            ("ratio_min", 2, 4, figures.MET),
            ("ratio_min", 2, 2.5, figures.MET_AIM),
            ("ratio_max", 2.5, 2.5, figures.MET_AIM),
            ("ratio_max", 2.4, 2, figures.MISSED),
            ("difference_max", 150, 0, figures.MET),
            ("difference_max", 149, 0, figures.MISSED),
        ):
            self.assertEqual(self.judge(kind, floor, aim, *cells).status, status, (kind, floor, aim))
        self.assertEqual(self.judge("max", 250, 0, *cells, against="").status, figures.MET)
        self.assertIn(" = 150 (100..200), ", self.judge("difference_max", 150, 0, *cells).line())

    def test_what_was_not_measured_is_not_met(self):
        missing, left_out = (self.judge("ratio_min", 1, 2, cell_of("rookery", 1), *more) for more in ([ABSENT], []))
        self.assertEqual((missing.status, left_out.status), (figures.NOT_MEASURED, figures.NOT_MEASURED))
        self.assertFalse(figures.all_floors_met([missing]))
        self.assertIn("httpuv MISSING", missing.line())

    def test_a_goal_beside_another_scenario(self):
        text = TEXT.replace("against", "beside")
        cells = [cell_of("rookery", 1000, 100, scenario="post"), cell_of("rookery", 900, 90)]
        verdict = self.judge("ratio_min", 0.85, 1, *cells, against="post", text=text)
        self.assertEqual((verdict.status, verdict.figure), (figures.MET, 0.9))
        self.assertIn("rookery / rookery in post = 0.9", verdict.line())
        alone = self.judge("ratio_min", 0.85, 1, cells[1], against="post", text=text)
        self.assertEqual(alone.status, figures.NOT_MEASURED)
        with self.assertRaisesRegex(ValueError, "nowhere"):
            self.judge("ratio_min", 0.85, 1, against="nowhere", text=text)

    def test_the_counting_line(self):
        cells = cell_of("rookery", 200), cell_of("httpuv", 100)
        line = figures.count_line([self.judge("ratio_min", floor, aim, *cells) for floor, aim in ((1, 2), (3, 4))])
        self.assertEqual(line, "goals: 1 of 2 floors met, 1 of 2 aims met, 1 missed, 0 not measured")


class Gate(unittest.TestCase):
    STORED = {"error": {"new/ours": {"allocs_per_op": 1.0, "instructions": 100.0}}}

    def test_what_is_stored_is_a_line_a_case(self):
        text = gate.as_text({"libc": "x"}, self.STORED)
        self.assertEqual(json.loads(text), {"libc": "x", "groups": self.STORED})
        self.assertIn('\n   "new/ours": {"allocs_per_op": 1.0, "instructions": 100.0}\n', text)

    def test_two_per_cent_of_instructions_pass_and_of_allocations_nothing(self):
        better = "(better: check it in with --gate-write)"
        for allocations, instructions, is_comparable, said in (
            (1.0, 101.9, True, []),
            (1.0, 98.1, True, []),
            (1.0, 102.1, True, ["error new/ours instructions: 102.1, was 100 (worse)"]),
            (1.0, 97.9, True, [f"error new/ours instructions: 97.9, was 100 {better}"]),
            (1.001, 100.0, True, ["error new/ours allocs_per_op: 1.001, was 1 (worse)"]),
            # Of another compiler.
            (2.0, 300.0, False, ["error new/ours allocs_per_op: 2, was 1 (worse)"]),
        ):
            now = {"error": {"new/ours": {"allocs_per_op": allocations, "instructions": instructions}}}
            self.assertEqual(gate.compare(self.STORED, now, is_comparable), said)

    def test_four_per_cent_of_the_instructions_of_r_pass(self):
        stored = {gate.R_GROUP: {"hello": {"instructions": 100.0}}}
        for instructions, differ in ((103.9, 0), (96.1, 0), (104.1, 1), (95.9, 1)):
            now = {gate.R_GROUP: {"hello": {"instructions": instructions}}}
            self.assertEqual(len(gate.compare(stored, now)), differ)

    def test_a_case_or_metric_that_comes_or_goes_differs(self):
        gone = gate.compare(self.STORED, {"error": {"new/ours": {"instructions": 100.0}}})
        self.assertEqual(gone, ["error new/ours allocs_per_op: only in gate.json"])
        come = gate.compare({}, self.STORED)
        self.assertEqual(come, [f"error new/ours {name}: only measured" for name in ("allocs_per_op", "instructions")])

    def test_no_benchmark_throws_dice(self):
        # `select!` begins at a random branch unless it is biased: echo-512 then varies from 4,197
        # to 4,340 instructions.
        for source in [*(BENCH / "micro").rglob("*.rs"), *(BENCH.parent / "libraries").glob("*/bench/**/*.rs")]:
            for select in re.findall(r"select! *\{\s*(\w+;)?", source.read_text()):
                self.assertEqual(select, "biased;", source)


class Reports(unittest.TestCase):
    CELLS = [cell_of("rookery", 2000, 3000), ABSENT]

    def report(self, *cells: Cell, others: float = 0.0, text: str = TEXT) -> Report:
        return Report(group_of(text), Namespace(quick=False, placement="pinned"), list(cells), {"kernel": "6"}, others)

    def test_the_table_says_what_is_missing_and_why(self):
        text = self.report(*self.CELLS).markdown()
        self.assertIn("| rookery | 2,500 (2,000..3,000) | 1 | 417 |", text)
        self.assertIn("| httpuv | MISSING | - | MISSING |\n- httpuv: MISSING: no httpuv", text)
        self.assertIn("not measured  hello requests_per_second: rookery / httpuv = httpuv MISSING", text)
        self.assertNotIn("NOT TO BE QUOTED", text)
        self.assertIn("NOT TO BE QUOTED", self.report(others=0.5).markdown())

    def test_the_plot_has_a_bar_for_what_was_measured_only(self):
        picture = self.report(*self.CELLS).picture()
        self.assertEqual(picture.count("<rect"), 2)  # the background and one bar
        self.assertIn("httpuv MISSING", picture)

    def test_every_row_stands_beside_the_base_and_the_other_contender(self):
        rates = {("hello", "rookery"): 2000, ("hello", "httpuv"): 100, ("post", "rookery"): 500, ("post", "httpuv"): 250}
        cells = [cell_of(contender, rate, rate, scenario=scenario) for (scenario, contender), rate in rates.items()]
        table = self.report(*cells, text='base = "hello"\n' + TEXT).markdown().split("### Beside hello")[1]
        self.assertIn("| post | 500 | 0.25 | 250 | 2.00 | 2,000 | 4.00 | 4,000 | 0.5 |", table)


class Readme(unittest.TestCase):
    ABOUT = {
        "processor": "P", "cores": "2", "memory": "24 GiB", "kernel": "6", "commit": "abc", "build": "1",
        "R": "Rscript (R) version 4.2.2 Patched", "contender httpuv": "1.6.9 with later 1.3.0",
    }  # fmt: skip

    def setUp(self):
        self.results = {}
        for group, shown in readme.shown().items():
            metric = GROUPS[group].metric
            cells = [
                {"contender": "rookery", "status": "ok", "median": {metric: 2500}},
                {"contender": "httpuv", "status": "ok", "median": {metric: 1000}, "ratio_of_ours": {"turns": [2, 3]}},
                {"contender": "nanonext", "status": MISSING, "reason": "no nanonext"},
            ]
            self.results[group] = {
                "quick": False, "others": 0.0, "when": "2026-01-02T03:04:05Z", "goals": [], "machine": dict(self.ABOUT),
                "scenarios": [{"name": name, "cells": copy.deepcopy(cells)} for name in shown],
            }  # fmt: skip
        self.results["startup"]["goals"].append({"scenario": "cold", "against": "httpuv", "status": figures.MISSED})

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
        words = " ".join(text.split())
        for part in (
            "hello world, 10 connections: requests/s | 2,500 | 1,000 (x 2.50) \\* | not here | - |",
            "`Connection: close`, 10 clients: requests/s | 2,500 | 1,000 (x 2.50) | not here | - |",
            "\\* Mostly a stall",
            "Not installed here: nanonext",
            "P, 2 cores, 24 GiB, Linux 6, R 4.2.2; httpuv 1.6.9 with later 1.3.0.",
            "Measured on 2026-01-02 at commit abc",
            "promises 1 values (floors) for r-http, r-websocket, startup, of which 0 are met; missed: cold against httpuv.",
        ):
            self.assertIn(part, words)
        self.assertNotIn("\nold\n", text)
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n"))

    def test_the_plot_shows_the_rates_of_the_table(self):
        picture = readme.picture(self.results)
        # The background, the legend, and a bar for each of two available contenders in each of five
        # rows.
        self.assertEqual(picture.count("<rect"), 1 + len(readme.CONTENDERS) + 2 * 5)
        self.assertEqual(picture.count(">2,500<"), 5)
        self.assertEqual(picture.count(">1,000 *<"), len(readme.STALLED))
        self.assertIn("2026-01-02, commit abc", picture)
        self.assertIn(">hello world, Connection: close, 10 clients<", picture)

    def test_the_plot_that_is_kept_is_of_the_table_that_is_kept(self):
        text = (BENCH.parent / "README.md").read_text(encoding="utf-8")
        kept = (BENCH.parent / readme.PLOT).read_text(encoding="utf-8")
        self.assertIn(f"]({readme.PLOT})", text)
        labels = [label for shown in readme.shown().values() for label in shown.values()]
        for label in (label for label in labels if label.endswith(readme.RATE)):
            line = next(line for line in text.splitlines() if line.startswith(f"| {label} |"))
            for cell in line.split("|")[2:-1]:
                self.assertIn(">" + cell.partition("(")[0].replace("\\*", "").strip(), kept, line)

    def test_what_is_not_to_be_quoted_is_refused(self):
        for group, changes, said in (
            ("r-http", {"others": 0.5}, "r-http: other programs used 50% of the machine"),
            ("startup", {"quick": True}, "startup: short samples"),
            ("r-websocket", {"machine": {**self.ABOUT, "build": "2"}}, "not of one build: r-http 1, r-websocket 2"),
            ("r-http", {"machine": {**self.ABOUT, "commit": "abc+"}}, "not committed"),
            ("startup", {"scenarios": []}, "left out of the run: cold"),
        ):
            self.setUp()
            self.results[group].update(changes)
            self.assertIn(said, self.written())
        self.setUp()
        self.results["r-http"]["scenarios"][0]["cells"][1].update(status=FAILED, reason="gone")
        self.assertIn("httpuv FAILED in hello-10: gone", self.written())
        del self.results["startup"]
        self.assertIn("no results of startup", self.written())

    def test_the_first_command_is_on_the_first_screen(self):
        # 24 lines of 120 columns
        text = (BENCH.parent / "README.md").read_text(encoding="utf-8").split("```", 1)[0]
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

    def test_stacks_fold_into_a_picture_of_their_shares(self):
        samples = flame_graph.fold(self.PRINTED)
        library = ("all", "R", "[libR.so]")
        self.assertEqual((samples["all",], samples[library], samples[*library, "bare_serve", "flush"]), (2, 2, 1))
        self.assertIn("<title>flush: 1 samples, 50.0%</title>", flame_graph.svg(samples, "x"))


class AdminDelays(unittest.TestCase):
    def test_a_stall_delays_all_requests_that_were_due_meanwhile(self):
        stall_s, asked = 0.3, itertools.count()

        class Admin(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                if next(asked) == 20:
                    time.sleep(stall_s)
                self.send_response(200)
                self.send_header("Content-Length", "1")
                self.end_headers()
                self.wfile.write(b"\n")

            def log_message(self, *_: object) -> None:
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Admin) as admin:
            threading.Thread(target=admin.serve_forever, daemon=True).start()
            server = mock.Mock(port=admin.server_port - observe.ADMIN_OFFSET)
            delays = observe._asked(server, {}, time.monotonic() + 1.0)
            admin.shutdown()
        self.assertEqual(set(delays), {*observe.PATHS, observe.EVENTS})
        late = [delay for each in delays.values() for delay in each]
        # One request is due every ten milliseconds, whatever the server does.
        self.assertAlmostEqual(len(late), 100, delta=3)
        self.assertGreater(max(late), 1000 * stall_s)
        # Each that was due in the first two thirds of the stall has waited for the last third.
        waited = sum(delay > 1000 * stall_s / 3 for delay in late)
        self.assertGreaterEqual(waited, 20)


class Soak(unittest.TestCase):
    REFERENCE = soak.Level(60, "reference", 12, 4, 100 << 20, 50 << 20)

    def test_what_is_left_and_who_was_not_served_is_named(self):
        for level, still_open, get, said in (
            ((12, 4, 100, 50), 0, (5, 0, ""), []),
            ((11, 3, 111, 50), 0, (5, 0, ""), []),
            ((13, 4, 100, 50), 0, (5, 0, ""), ["descriptors: +1 since the reference, at most +0"]),
            ((12, 5, 100, 50), 0, (5, 0, ""), ["threads: +1 since the reference, at most +0"]),
            ((12, 4, 113, 50), 0, (5, 0, ""), ["rss: +13 MiB since the reference, at most +12"]),
            ((12, 4, 100, 53), 0, (5, 0, ""), ["r: +3 MiB since the reference, at most +2"]),
            ((12, 4, 100, 50), 2, (5, 0, ""), ["the app still counts 2 open WebSockets and streams"]),
            ((12, 4, 100, 50), 0, (5, 1, "reset"), ["get: 1 of 6 failed, the first with reset"]),
            ((12, 4, 100, 50), 0, (0, 0, ""), ["get: not one was done"]),
        ):
            descriptors, threads, mib, r = level
            end = soak.Level(600, "end", descriptors, threads, mib << 20, r << 20)
            self.assertEqual(soak.complaints(self.REFERENCE, end, still_open, {"get": get}), said)

    def test_frames_are_masked_and_measured(self):
        for size, head in ((5, 2), (126, 4), (70_000, 10)):
            payload = bytes(i % 251 for i in range(size))
            frame = websocket.frame(2, payload)
            key, masked = frame[head : head + 4], frame[head + 4 :]
            self.assertEqual(bytes(byte ^ key[i % 4] for i, byte in enumerate(masked)), payload)


if __name__ == "__main__":
    unittest.main()
