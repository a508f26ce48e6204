"""Tests of scripts/release, scripts/stranger and packaging/check, without a build: python3 -m unittest discover -s packaging/tests."""

import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import preflight  # noqa: E402
import program  # noqa: E402
import tarball  # noqa: E402
import versions  # noqa: E402
from common import ROOT, Failed, load, run, version  # noqa: E402
from folder import InFolder  # noqa: E402


class Preflight(InFolder):
    def repository(self, *tags: str) -> Path:
        for words in (["init", "-q"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "one"]):
            run(["git", "-C", self.folder, *words])
        for tag in tags:
            run(["git", "-C", self.folder, "tag", tag])
        return self.folder

    def failures(self, tree: Path, wanted: str) -> list[str]:
        report = preflight.Report()
        with mock.patch("builtins.print"):
            preflight.before(report, tree, wanted)
        return report.failures

    def wrong_branch(self, tree: Path) -> list[str]:
        report = preflight.Report()
        with mock.patch("builtins.print"):
            preflight.branch(report, tree)
        return report.failures

    def test_a_release_comes_from_main_with_everything_of_the_published_main(self) -> None:
        tree = self.repository()
        run(["git", "-C", tree, "checkout", "-q", "-B", "main"])
        self.assertEqual(self.wrong_branch(tree), ["there is no origin/main to compare with: git fetch origin"])
        run(["git", "-C", tree, "update-ref", "refs/remotes/origin/main", "HEAD"])
        self.assertEqual(self.wrong_branch(tree), [])
        run(["git", "-C", tree, "checkout", "-q", "-b", "other"])
        self.assertEqual(self.wrong_branch(tree), ["a release comes from the branch main, and this is other: git switch main"])
        run(["git", "-C", tree, "checkout", "-q", "--detach"])
        self.assertEqual(self.wrong_branch(tree), ["a release comes from the branch main, and this is a detached HEAD: git switch main"])

    def test_a_main_that_lacks_commits_of_the_published_main_fails(self) -> None:
        tree = self.repository()
        run(["git", "-C", tree, "checkout", "-q", "-B", "main"])
        words = ["-c", "user.name=a", "-c", "user.email=a@b", "commit-tree", "-p", "HEAD", "-m", "two", "HEAD^{tree}"]
        run(["git", "-C", tree, "update-ref", "refs/remotes/origin/main", run(["git", "-C", tree, *words]).strip()])
        self.assertEqual(self.wrong_branch(tree), ["origin/main has commits that this branch lacks: git pull"])

    def test_what_is_missing_fails_a_release_and_not_a_dry_run(self) -> None:
        for is_strict, expected in ((True, ["the program for macOS"]), (False, [])):
            report = preflight.Report(is_strict)
            with mock.patch("builtins.print"):
                report.missing("the program for macOS")
            self.assertEqual(report.failures, expected)

    def test_without_cargo_deny_a_dry_run_passes_and_a_release_does_not(self) -> None:
        for is_strict, expected in ((True, ["by cargo-deny, which is missing: scripts/setup release"]), (False, [])):
            report = preflight.Report(is_strict)
            with (
                mock.patch("builtins.print"),
                mock.patch.object(preflight.licences, "crates", lambda *words, **options: []),
                mock.patch.object(shutil, "which", lambda name: None),
            ):
                preflight.licence(report, ROOT)
            self.assertEqual(report.failures, expected)

    def test_a_clean_tree_and_a_newer_version_pass(self) -> None:
        self.assertEqual(self.failures(self.repository("v0.9.0", "v0.10.0", "other"), "0.11.0"), [])

    def test_a_version_that_is_not_newer_fails(self) -> None:
        self.assertEqual(self.failures(self.repository("v0.9.0", "v0.10.0"), "0.10.0"), ["0.10.0 is not newer than the last release, 0.10.0"])

    def test_an_uncommitted_file_fails(self) -> None:
        tree = self.repository()
        (tree / "forgotten").touch()
        self.assertIn("forgotten", self.failures(tree, "0.1.0")[0])


class Scripts(InFolder):
    def reported(self, is_strict: bool, text: str) -> tuple[list[str], str]:
        """Runs a script that prints a text, and returns the failures and the report."""
        report = preflight.Report(is_strict)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            (self.folder / "tree").mkdir(exist_ok=True)
            preflight.script(report, self.folder / "tree", "echo", text)
        return report.failures, printed.getvalue()

    def test_what_a_script_did_not_run_is_not_checked_and_fails_a_release(self) -> None:
        text = "check: NOT RUN: deb: lintian is missing"
        failures, printed = self.reported(False, text)
        self.assertEqual(failures, [])
        self.assertIn("not checked  by echo: deb: lintian is missing", printed)
        self.assertEqual(self.reported(True, text)[0], ["by echo: deb: lintian is missing"])
        self.assertEqual(self.reported(True, "check: deb passed in 3 s")[0], [])


    def root_words(self, user: int, status: int) -> list[str]:
        with (
            mock.patch.object(os, "geteuid", lambda: user),
            mock.patch.object(shutil, "which", lambda name: f"/usr/bin/{name}"),
            mock.patch.object(preflight.subprocess, "run", lambda *words, **options: mock.Mock(returncode=status)),
        ):
            return preflight.as_root()

    def test_the_checks_of_artefacts_run_as_root_if_the_user_may(self) -> None:
        self.assertEqual(self.root_words(0, 0), [])
        self.assertEqual(self.root_words(1000, 1), [])
        self.assertEqual(self.root_words(1000, 0)[:4], ["sudo", "--non-interactive", "--preserve-env", "env"])
        self.assertIn(f"PATH={os.environ['PATH']}", self.root_words(1000, 0))

    def test_the_workflow_tries_out_a_release_as_root(self) -> None:
        text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
        self.assertRegex(text, r"(?s)sudo git config --system --add safe\.directory .*sudo env \"PATH=\$PATH\" .*scripts/release \"\$VERSION\" --dry-run --full")

    def test_the_workflow_names_every_check(self) -> None:
        text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
        named = re.search(r"packaging/check (.*)", text)[1].split()
        self.assertEqual(sorted(named), sorted(load(ROOT / "packaging" / "check").CHECKS))


class Checks(InFolder):
    def setUp(self) -> None:
        super().setUp()
        self.check = load(ROOT / "packaging" / "check")

    def main(self, *words: str) -> tuple[int, str]:
        printed = io.StringIO()
        with mock.patch.object(self.check, "ROOT", self.folder), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            return self.check.main([*words, "--from", str(self.folder)]), printed.getvalue()

    def test_a_check_that_is_named_fails_without_its_artefact(self) -> None:
        for name in self.check.CHECKS:
            status, printed = self.main(name)
            self.assertEqual(status, 1, printed)
            self.assertIn(f"check: {name} FAILED: ", printed)
        self.assertIn("has no rookery_*.tar.gz", printed)

    def test_one_missing_artefact_of_several_fails_a_check_that_is_named(self) -> None:
        def start(packages: Path, work: Path, target: program.Target) -> None:
            if target.is_windows:
                raise self.check.NoArtefact("there is none for Windows")

        with mock.patch.object(self.check, "start_archive", start):
            status, printed = self.main("foreign")
        self.assertEqual(status, 1, printed)
        self.assertIn("x86_64-pc-windows-gnu: there is none for Windows", printed)

    def test_a_part_of_the_artefacts_need_not_have_all(self) -> None:
        status, printed = self.main("deb", "--partial")
        self.assertEqual(status, 0, printed)
        self.assertIn("check: NOT RUN: deb: ", printed)

    def test_a_missing_tool_is_not_run_and_no_failure(self) -> None:
        with mock.patch.dict(self.check.CHECKS, {"deb": mock.Mock(side_effect=self.check.NotRun("it needs root"))}):
            status, printed = self.main("deb")
        self.assertEqual(status, 0, printed)
        self.assertIn("check: NOT RUN: deb: it needs root", printed)

    def test_without_names_a_missing_artefact_is_no_failure(self) -> None:
        status, printed = self.main()
        self.assertEqual(status, 0, printed)
        self.assertEqual(printed.count("NOT RUN"), len(self.check.CHECKS))


class Release(InFolder):
    def setUp(self) -> None:
        super().setUp()
        self.release = load(ROOT / "scripts" / "release")
        self.source, self.copy = self.folder / "source", self.folder / "work" / "tree"
        for name in (*(name for name, _ in versions.PLACES), *versions.LOCKS, "CHANGELOG.md"):
            place = self.source / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text((ROOT / name).read_text())
        (self.source / ".gitignore").write_text(".local/\n")
        for words in (["init", "-q"], ["checkout", "-q", "-b", "main"], ["config", "user.name", "Ada"], ["config", "user.email", "ada@example.org"], ["add", "-A"], ["commit", "-q", "-m", "one"]):
            run(["git", "-C", self.source, *words])

    def state(self) -> str:
        return run(["git", "-C", self.source, "log", "--format=%s %an", "--decorate=no"]) + run(["git", "-C", self.source, "status", "--porcelain"])

    def test_the_copy_has_the_new_version_and_the_repository_is_unchanged(self) -> None:
        self.release.copy_of_head(self.source, self.copy, "7.0.0")
        self.assertEqual(versions.disagreements(self.copy, "7.0.0"), [])
        self.assertEqual(self.state(), "one Ada\n")
        self.assertEqual(version(self.source), version())

    def test_the_commit_and_the_tag_are_taken_over(self) -> None:
        self.release.copy_of_head(self.source, self.copy, "7.0.0")
        self.release.take_over(self.copy, self.source, "7.0.0")
        self.assertEqual(self.state(), "chore(release): 7.0.0 Ada\none Ada\n")
        self.assertEqual(version(self.source), "7.0.0")
        self.assertEqual(run(["git", "-C", self.source, "describe", "--exact-match"]), "v7.0.0\n")

    def test_publishing_stops_at_the_first_command_that_fails_and_names_the_rest(self) -> None:
        marker = self.folder / "ran"
        with self.assertRaisesRegex(Failed, "false\n    touch"), mock.patch("builtins.print"):
            self.release.publish([["true"], ["false"], ["touch", str(marker)]], self.folder / "published")
        self.assertFalse(marker.exists())

    def test_publishing_again_runs_only_what_is_left(self) -> None:
        log, cause = self.folder / "log", self.folder / "cause"
        todo = [["sh", "-c", f"echo first >> {log}"], ["sh", "-c", f"test -e {cause} && echo second >> {log}"]]
        with mock.patch("builtins.print"):
            with self.assertRaises(Failed):
                self.release.publish(todo, self.folder / "published")
            cause.touch()
            self.release.publish(todo, self.folder / "published")
            self.release.publish(todo, self.folder / "published")
        self.assertEqual(log.read_text(), "first\nsecond\n")

    def tagged(self) -> Path:
        """Does what a run does that has built and tagged 7.0.0, and returns its folder."""
        folder = self.source / ".local" / "release" / "7.0.0"
        self.release.copy_of_head(self.source, folder / "tree", "7.0.0")
        (folder / "artefacts").mkdir()
        (folder / "artefacts" / "rookery.whl").write_text("a wheel")
        (folder / "artefacts" / "SHA256SUMS").write_text(self.release.sums(folder / "artefacts"))
        (folder / "notes.md").write_text("- New.\n")
        self.release.take_over(folder / "tree", self.source, "7.0.0")
        run(["git", "init", "-q", "--bare", self.folder / "origin"])
        run(["git", "-C", self.source, "remote", "add", "origin", self.folder / "origin"])
        run(["git", "-C", self.source, "push", "-q", "origin", "HEAD~:refs/heads/main"])
        run(["git", "-C", self.source, "fetch", "-q", "origin"])
        return folder

    def main(self, *words: str) -> tuple[int, str]:
        """Runs scripts/release in the source, and returns its status and what it prints. It must not get as far as a copy."""
        printed = io.StringIO()
        with (
            mock.patch.object(self.release, "ROOT", self.source),
            mock.patch.object(self.release, "copy_of_head", side_effect=AssertionError("begins again")),
            mock.patch.object(sys, "argv", ["release", *words]),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            return self.release.main(), printed.getvalue()

    def test_a_version_that_is_tagged_is_never_built_again(self) -> None:
        folder = self.tagged()
        for words in ([], ["--dry-run"], ["--check-only"], ["--only", "program"]):
            status, printed = self.main("7.0.0", *words)
            self.assertEqual(status, 1, printed)
            self.assertIn("the repository is not ready; nothing was changed", printed)
            self.assertIn("`scripts/release 7.0.0 --publish` publishes", printed)
        self.assertEqual((folder / "artefacts" / "rookery.whl").read_text(), "a wheel")

    def test_publishing_takes_what_an_earlier_run_has_built(self) -> None:
        folder = self.tagged()
        todo = [
            [*self.release.commands("7.0.0", folder / "artefacts")[0], "--quiet"],
            ["cp", str(folder / "artefacts" / "rookery.whl"), str(self.folder / "uploaded")],
        ]
        with mock.patch.object(self.release, "commands", lambda version, out: todo):
            status, printed = self.main("7.0.0", "--publish")
        self.assertEqual(status, 0, printed)
        self.assertEqual((self.folder / "uploaded").read_text(), "a wheel")
        remote = run(["git", "-C", self.folder / "origin", "rev-parse", "main", "v7.0.0^{commit}"]).split()
        self.assertEqual(remote, [run(["git", "-C", self.source, "rev-parse", "HEAD"]).strip()] * 2)

    def test_artefacts_that_are_not_those_of_the_tag_are_not_published(self) -> None:
        folder = self.tagged()
        wheel_file = folder / "artefacts" / "rookery.whl"
        wheel_file.write_text("another")
        self.assertIn("are not those of its SHA256SUMS", self.main("7.0.0", "--publish")[1])
        wheel_file.write_text("a wheel")
        run(["git", "-C", self.source, "tag", "-d", "v7.0.0"])
        run(["git", "-C", self.source, "tag", "v7.0.0", "HEAD~"])
        self.assertIn("and the artefacts in", self.main("7.0.0", "--publish")[1])
        shutil.rmtree(folder)
        self.assertIn("delete the tag (git tag -d v7.0.0)", self.main("7.0.0", "--publish")[1])

    def test_a_release_from_another_branch_changes_nothing(self) -> None:
        folder = self.tagged()
        run(["git", "-C", self.source, "checkout", "-q", "-b", "other"])
        for words in (["7.0.0", "--publish"], ["7.0.1"], ["7.0.1", "--publish"]):
            status, printed = self.main(*words)
            self.assertEqual(status, 1, printed)
            self.assertIn("a release comes from the branch main, and this is other", printed)
        self.assertFalse((folder / "published").exists())

    def test_publishing_asks_the_remote_what_others_have_pushed(self) -> None:
        self.tagged()
        others = self.folder / "others"
        run(["git", "clone", "-q", "-b", "main", self.folder / "origin", others])
        run(["git", "-C", others, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "two"])
        run(["git", "-C", others, "push", "-q", "origin", "main"])
        self.assertIn("origin/main has commits that this branch lacks: git pull", self.main("7.0.0", "--publish")[1])

    def test_a_part_of_a_release_is_a_dry_run(self) -> None:
        for words in (["--only", "tarball"], ["--target", "x86_64-unknown-linux-musl"], ["--check-only"], ["--dry-run"]):
            self.assertTrue(self.release.arguments(["7.0.0", *words]).dry_run, words)
        self.assertFalse(self.release.arguments(["7.0.0"]).dry_run)
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            self.release.arguments(["7.0.0", "--publish", "--only", "tarball"])

    def started(self, *words: str, missing: tuple[str, ...] = ()) -> tuple[list[str], list[str], Path]:
        """Does the part of a run that builds, without building. Returns the words of packaging/check, what it names as not checked, and the folder."""
        report, calls, left = preflight.Report(), [], []
        report.not_checked = left.append
        tree = Path(tempfile.mkdtemp(dir=self.folder)) / "tree"
        tree.mkdir()
        with (
            mock.patch.dict(os.environ, {"SOURCE_DATE_EPOCH": "0"}),
            mock.patch.object(program, "needs", lambda target: ["zig"] if target.triple in missing else []),
            mock.patch.object(self.release.packages, "build", lambda kinds, targets, out, tree: []),
            mock.patch.object(self.release.sbom, "write", lambda out, tree: out / "sbom"),
            mock.patch.object(preflight, "summary", lambda path: "an SBOM"),
            mock.patch.object(preflight, "tarballs", lambda report, tree, out: (out / "httpuv_1.2.3.tar.gz").write_text("R")),
            mock.patch.object(preflight, "script", lambda report, tree, *words, **options: calls.extend(words)),
            mock.patch("builtins.print"),
        ):
            out = self.release.build(report, tree, self.release.arguments(["7.0.0", *words]))
        return [word for word in calls if word != str(out)], left, out

    def test_a_whole_release_names_the_checks_of_all_artefacts(self) -> None:
        words, left, out = self.started("--full")
        self.assertEqual(words, ["packaging/check", "archive", "foreign", "wheel", "deb", "image", "--from"])
        self.assertEqual(left, [])
        self.assertRegex((out / "SHA256SUMS").read_text(), r"^[0-9a-f]{64}  httpuv_1.2.3.tar.gz\n$")

    def test_what_only_full_starts_is_named(self) -> None:
        words, left, _ = self.started()
        self.assertEqual(words, ["packaging/check", "archive", "foreign", "wheel", "deb", "--from"])
        self.assertEqual(left, ["by packaging/check: image, which `--full` starts"])

    def test_a_part_of_a_release_names_itself_to_the_checks(self) -> None:
        self.assertEqual(self.started("--target", "x86_64-unknown-linux-gnu")[0][-1], "--partial")
        words, left, _ = self.started("--full", missing=("aarch64-apple-darwin",))
        self.assertEqual(words[-1], "--partial")
        self.assertEqual(left, ["aarch64-apple-darwin was not built: zig is missing"])

    def test_a_target_that_cannot_be_built_fails_a_release(self) -> None:
        target = program.of("x86_64-pc-windows-gnu")
        with mock.patch.object(program, "needs", lambda target: ["a linker"]), mock.patch("builtins.print"):
            for is_strict, expected in ((True, 1), (False, 0)):
                report = preflight.Report(is_strict)
                self.release.build_program(report, self.source, self.folder, target, is_required=False)
                self.assertEqual(len(report.failures), expected)


class Strangers(unittest.TestCase):
    def test_the_stranger_installs_httpuv_before_serving_an_app(self) -> None:
        stranger = load(ROOT / "scripts" / "stranger")
        steps = []
        place = mock.Mock(root=Path("/root"), command=lambda *words: list(words), run=lambda *words, **options: steps.append(" ".join(words)))
        paths = [mock.Mock(stat=lambda: mock.Mock(st_size=1)) for _ in range(2)]
        paths[0].name, paths[1].name = "rookery_1.2.3.tar.gz", "httpuv_1.6.17.1.tar.gz"
        with (
            mock.patch.object(tarball, "make", lambda *arguments, **options: paths),
            mock.patch.object(stranger, "check_serves", lambda words, expected: steps.append(f"{' '.join(words)}: {expected}")),
            mock.patch.object(stranger, "run_r_example"),
            mock.patch("builtins.print"),
        ):
            stranger.package(place, ROOT)
        self.assertEqual(steps[:2], ["R CMD INSTALL rookery_1.2.3.tar.gz", 'Rscript -e rookery::install_compat("httpuv_1.6.17.1.tar.gz")'])
        self.assertEqual(steps[3:], ["sh -ec rookery new shiny my-app", "rookery serve my-app --port 0: shiny.min.js"])

    def test_the_readmes_have_what_the_stranger_runs(self) -> None:
        stranger = load(ROOT / "scripts" / "stranger")
        readme = (ROOT / "README.md").read_text()
        self.assertTrue(any("rookery new shiny" in block for block in stranger.blocks(readme, "sh")))
        self.assertEqual(sum("runServer(" in block and "8000" in block for block in stranger.blocks(readme, "r")), 1)
        for crate in preflight.CRATES:
            folder = ROOT / "libraries" / crate.removeprefix("rookery-")
            self.assertIn(crate.replace("-", "_"), stranger.blocks((folder / "README.md").read_text(), "rust")[0])
            for example in stranger.RUNNABLE[crate]:
                self.assertTrue((folder / "examples" / f"{example}.rs").exists(), example)


if __name__ == "__main__":
    unittest.main()
