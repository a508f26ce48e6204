"""Tests of the scripts of packaging/ that need no build: python3 -m unittest discover -s packaging/tests."""

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
import unittest
import zipfile
from datetime import date
from pathlib import Path
from unittest import mock

try:
    from packaging import __version__, metadata

    # Metadata 2.4 exists since then.
    has_metadata = tuple(map(int, __version__.split(".")[:2])) >= (24, 2)
except ImportError:
    has_metadata = False

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import archive  # noqa: E402
import debian  # noqa: E402
import licences  # noqa: E402
import preflight  # noqa: E402
import program  # noqa: E402
import rootfs  # noqa: E402
import tarball  # noqa: E402
import versions  # noqa: E402
import wheel  # noqa: E402
from common import ROOT, Failed, File, epoch, load, run, tar_gz, version, zip_file  # noqa: E402

DATE = 1_700_000_000


class InFolder(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


class Archives(InFolder):
    files = {"a/program": File(b"\x7fELF", is_program=True), "a/README.md": File("text\n")}

    def written(self, write, name: str, files: dict) -> bytes:
        path = self.folder / name
        write(path, files, DATE)
        return path.read_bytes()

    def test_a_tar_archive_has_the_same_bytes_in_any_order_and_under_any_name(self) -> None:
        backwards = dict(reversed(self.files.items()))
        self.assertEqual(self.written(tar_gz, "one.tar.gz", self.files), self.written(tar_gz, "two.tar.gz", backwards))

    def test_a_tar_archive_keeps_modes_and_the_date_and_names_no_user(self) -> None:
        self.written(tar_gz, "one.tar.gz", self.files)
        with tarfile.open(self.folder / "one.tar.gz") as packed:
            entry = packed.getmember("a/program")
            self.assertEqual((entry.mode, entry.mtime, entry.uid, entry.uname), (0o755, DATE, 0, "root"))
            self.assertEqual(packed.getnames(), ["a/README.md", "a/program"])

    def test_a_zip_archive_has_the_same_bytes_and_keeps_modes(self) -> None:
        self.assertEqual(self.written(zip_file, "one.zip", self.files), self.written(zip_file, "two.zip", self.files))
        with zipfile.ZipFile(self.folder / "one.zip") as packed:
            self.assertEqual(packed.getinfo("a/program").external_attr >> 16, 0o100755)

    def test_the_date_is_that_of_the_environment_or_of_the_commit(self) -> None:
        with mock.patch.dict(os.environ, {"SOURCE_DATE_EPOCH": "12"}):
            self.assertEqual(epoch(), 12)
        with mock.patch.dict(os.environ):
            os.environ.pop("SOURCE_DATE_EPOCH", None)
            self.assertEqual(epoch(), int(run(["git", "-C", ROOT, "log", "-1", "--format=%ct"])))

    def test_a_command_that_fails_shows_its_messages(self) -> None:
        with self.assertRaisesRegex(Failed, "status 3:\nwhy"):
            run(["sh", "-c", "echo why >&2; exit 3"])
        with self.assertRaisesRegex(Failed, "no-such-program is missing"):
            run(["no-such-program"])


class Wheels(InFolder):
    def made(self) -> Path:
        binary = self.folder / "rookery"
        binary.write_bytes(b"program")
        texts = {"LICENSE": File("licence"), "THIRD-PARTY-LICENSES.txt": File("others")}
        with mock.patch.object(archive, "legal", lambda target, tree: texts):
            return wheel.make(program.of("x86_64-unknown-linux-gnu"), binary, self.folder)

    @unittest.skipUnless(has_metadata, "Python's package packaging, version 24.2 or later, is missing")
    def test_the_metadata_has_the_form_of_pep_639(self) -> None:
        with zipfile.ZipFile(self.made()) as packed:
            info = f"rookery-{version()}.dist-info"
            # Raises an error for each field that the version of the metadata does not have.
            parsed = metadata.Metadata.from_email(packed.read(f"{info}/METADATA"), validate=True)
            self.assertEqual((parsed.metadata_version, parsed.license_expression, parsed.license), ("2.4", "MIT", None))
            self.assertFalse([line for line in parsed.classifiers if line.startswith("License ::")])
            for name in parsed.license_files:
                self.assertIn(f"{info}/licenses/{name}", packed.namelist())

    def test_the_record_lists_every_file_with_its_checksum(self) -> None:
        path = self.made()
        self.assertEqual(path.name, f"rookery-{version()}-py3-none-manylinux_2_28_x86_64.whl")
        with zipfile.ZipFile(path) as packed:
            info = f"rookery-{version()}.dist-info"
            listed = dict(line.split(",", 1) for line in packed.read(f"{info}/RECORD").decode().splitlines())
            self.assertEqual(set(listed), set(packed.namelist()))
            name = f"rookery-{version()}.data/scripts/rookery"
            self.assertEqual(listed[name], f"sha256={wheel.checksum(b'program')},7")
            self.assertEqual(packed.getinfo(name).external_attr >> 16 & 0o111, 0o111)
            self.assertIn("Tag: py3-none-manylinux_2_28_x86_64", packed.read(f"{info}/WHEEL").decode())
            self.assertIn(f"Version: {version()}", packed.read(f"{info}/METADATA").decode())

    def test_checksums_have_the_form_of_pep_427(self) -> None:
        self.assertEqual(wheel.checksum(b""), "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU")
        self.assertEqual(len(hashlib.sha256(b"").digest()), 32)


class Licences(unittest.TestCase):
    def test_an_expression_is_permitted_as_spdx_defines_it(self) -> None:
        permitted = {"MIT", "ISC", "Apache-2.0 WITH LLVM-exception"}
        for expression, expected in {
            "MIT": True,
            "GPL-3.0-only": False,
            "GPL-3.0-only OR MIT": True,
            "MIT/GPL-3.0-only": True,
            "MIT AND GPL-3.0-only": False,
            "MIT AND ISC OR GPL-3.0-only": True,
            "MIT AND (ISC OR GPL-3.0-only)": True,
            "(MIT OR GPL-2.0) AND Unicode-3.0": False,
            "Apache-2.0 WITH LLVM-exception": True,
            "Apache-2.0": False,
            "": False,
        }.items():
            with self.subTest(expression):
                self.assertEqual(licences.is_permitted(expression, permitted), expected)

    def test_deny_toml_permits_what_the_program_contains_and_nothing_else(self) -> None:
        found = licences.crates(["rookery-cli"])
        self.assertEqual(licences.refused(found), [])
        self.assertGreater(len(found), 50)
        copyleft = licences.Crate("other", "1.0.0", "GPL-3.0-only", (), ROOT, "", "0")
        self.assertEqual(licences.refused([copyleft]), ["other 1.0.0: GPL-3.0-only"])

    def test_every_crate_in_the_program_has_the_text_of_its_licence(self) -> None:
        text = licences.texts(licences.crates(["rookery-cli"]))
        without = [line for line in text.splitlines() if line.startswith("These crates contain no text")]
        self.assertEqual(without, [])
        # The last one is of mimalloc, whose licence is beside its C code.
        for name in ("ring 0.17", "uPlot", "Copyright (c) 2022 Leon Sorokin", "hyper 1", "Daan Leijen"):
            self.assertTrue(name in text, f"there is no {name}")


    def test_the_r_package_takes_scripts_and_files_from_the_same_place(self) -> None:
        of_r = load(ROOT / "scripts" / "r" / "licences")
        package = {"name": "one", "version": "1.0.0", "license": "MIT", "authors": [], "manifest_path": str(ROOT / "Cargo.toml")}
        other = ("other.js 1.0", "MIT", "Ada", "LICENSE")
        with (
            mock.patch.object(of_r, "packages", lambda: [package]),
            mock.patch.object(licences, "SCRIPTS", [other]),
            mock.patch.object(licences, "files", lambda folder: [folder / "LICENSE"]),
        ):
            authors, texts = of_r.generate().values()
        self.assertIn("other.js 1.0 (a script of the live page)\n  Licence: MIT\n  Authors: Ada", authors)
        self.assertIn("one 1.0.0\nother.js 1.0\n\nMIT License", texts)


class Versions(InFolder):
    def tree(self) -> Path:
        for name in (*(name for name, _ in versions.PLACES), *versions.LOCKS, "CHANGELOG.md", "README.md"):
            place = self.folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text((ROOT / name).read_text())
        return self.folder

    def test_the_repository_agrees_with_itself(self) -> None:
        self.assertEqual(versions.disagreements(ROOT, version()), [])

    def test_raising_the_version_changes_every_place_and_only_the_version(self) -> None:
        tree = self.tree()
        (tree / "CHANGELOG.md").write_text("# Changes\n\n## Unreleased\n\n- New.\n\n## 0.0.9 (2020-01-01)\n\n- Old.\n")
        versions.raise_to(tree, "8.7.6", date(2026, 11, 26))
        self.assertEqual(versions.disagreements(tree, "8.7.6"), [])
        self.assertEqual(version(tree), "8.7.6")
        self.assertEqual(versions.section(tree, "8.7.6"), "- New.")
        self.assertIn("## 8.7.6 (2026-11-26)", (tree / "CHANGELOG.md").read_text())
        for name, _ in versions.PLACES:
            before, after = (ROOT / name).read_text().splitlines(), (tree / name).read_text().splitlines()
            self.assertEqual(sum(one != two for one, two in zip(before, after, strict=True)), 1, name)

    def test_a_place_that_disagrees_is_named(self) -> None:
        tree = self.tree()
        description = tree / "r" / "DESCRIPTION"
        description.write_text(description.read_text().replace(f"Version: {version()}", "Version: 9.9.9"))
        self.assertEqual(versions.disagreements(tree, version()), ["r/DESCRIPTION has 9.9.9"])

    def test_a_place_that_has_vanished_is_an_error(self) -> None:
        tree = self.tree()
        (tree / "docs" / "operations.md").write_text("")
        with self.assertRaisesRegex(Failed, "docs/operations.md names the version 0 times"):
            versions.named(tree)

    def test_only_three_numbers_are_a_version(self) -> None:
        self.assertEqual(versions.parse("0.12.3"), (0, 12, 3))
        for text in ("1.2", "v1.2.3", "1.2.3-rc1", "01.2.3", ""):
            with self.assertRaises(Failed):
                versions.parse(text)


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

    def test_a_part_of_a_release_is_a_dry_run(self) -> None:
        for words in (["--only", "tarball"], ["--target", "x86_64-unknown-linux-musl"], ["--check-only"], ["--dry-run"]):
            self.assertTrue(self.release.arguments(["7.0.0", *words]).dry_run, words)
        self.assertFalse(self.release.arguments(["7.0.0"]).dry_run)
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            self.release.arguments(["7.0.0", "--publish", "--only", "tarball"])

    def test_a_target_that_cannot_be_built_fails_a_release(self) -> None:
        target = program.of("x86_64-pc-windows-gnu")
        with mock.patch.object(program, "needs", lambda target: ["a linker"]), mock.patch("builtins.print"):
            for is_strict, expected in ((True, 1), (False, 0)):
                report = preflight.Report(is_strict)
                self.release.build_program(report, self.source, self.folder, target, is_required=False)
                self.assertEqual(len(report.failures), expected)


class Tarballs(InFolder):
    def test_the_documents_name_the_tarball_of_httpuv(self) -> None:
        name = f"httpuv_{re.search(r'^Version: (.+)$', (ROOT / 'compat/httpuv/DESCRIPTION').read_text(), re.M)[1]}.tar.gz"
        for path in ("README.md", "r/vignettes/from-httpuv.Rmd", "r/R/use-compat.R"):
            self.assertIn(name, (ROOT / path).read_text(), path)

    def test_r_universe_takes_the_package_from_the_repository(self) -> None:
        (entry,) = json.loads((ROOT / "packaging" / "r-universe" / "packages.json").read_text())
        self.assertEqual(entry["url"], debian.homepage(ROOT))
        self.assertEqual((entry["package"], (ROOT / entry["subdir"] / "DESCRIPTION").read_text().split("\n")[0]), ("rookery", "Package: rookery"))

    @unittest.skipUnless(shutil.which("R"), "R is missing")
    def test_both_packages_become_artefacts(self) -> None:
        out = self.folder / "out"
        out.mkdir()
        for source, name in (("r", "rookery"), ("compat/httpuv", "httpuv")):
            place = self.folder / "tree" / source
            place.mkdir(parents=True)
            (place / "DESCRIPTION").write_text(f"Package: {name}\nVersion: 1.2.3\nTitle: A\nDescription: B.\nLicense: MIT\nAuthor: Ada\nMaintainer: Ada <a@b.org>\n")
            (place / "NAMESPACE").touch()
        report, printed = preflight.Report(), io.StringIO()
        with contextlib.redirect_stdout(printed):
            preflight.tarballs(report, self.folder / "tree", out)
        self.assertEqual(sorted(path.name for path in out.iterdir()), ["httpuv_1.2.3.tar.gz", "rookery_1.2.3.tar.gz"])
        self.assertEqual(report.failures, [])
        release = load(ROOT / "scripts" / "release")
        self.assertRegex(release.sums(out), r"^[0-9a-f]{64}  httpuv_1.2.3.tar.gz\n[0-9a-f]{64}  rookery_1.2.3.tar.gz\n$")

    def test_the_check_of_the_image_gives_it_both(self) -> None:
        check = load(ROOT / "packaging" / "check")
        (self.folder / "rookery_1.2.3.tar.gz").touch()
        with self.assertRaisesRegex(check.NoArtefact, "has no httpuv_"):
            check.check_image(self.folder, self.folder / "work")
        (self.folder / "httpuv_1.6.17.1.tar.gz").touch()
        contexts = []

        def build(dockerfile: Path, context: Path, work: Path):
            contexts.append(sorted(path.name for path in context.iterdir()))
            raise Failed("needs root")

        failing = mock.Mock(return_value=mock.Mock(returncode=1))
        with mock.patch.object(check.subprocess, "run", failing), mock.patch.object(rootfs, "build", build), mock.patch("builtins.print"):
            with self.assertRaises(check.NotRun):
                check.check_image(self.folder, self.folder / "work")
        self.assertEqual(contexts, [["httpuv_1.6.17.1.tar.gz", "rookery_1.2.3.tar.gz"]])


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
            folder = ROOT / "crates" / crate.removeprefix("rookery-")
            self.assertIn(crate.replace("-", "_"), stranger.blocks((folder / "README.md").read_text(), "rust")[0])
            for example in stranger.RUNNABLE[crate]:
                self.assertTrue((folder / "examples" / f"{example}.rs").exists(), example)


class Debian(unittest.TestCase):
    def test_the_maintainer_is_who_description_names(self) -> None:
        people = 'c(person("Ada", "Lovelace", role = c("aut", "cre"), email = "ada@example.org"), person("Other", role = "ctb"))'
        with mock.patch.object(debian, "description", lambda tree, field: people):
            self.assertEqual(debian.maintainer(), "Ada Lovelace <ada@example.org>")
        with mock.patch.object(debian, "description", lambda tree, field: 'person("Other", role = "ctb")'), self.assertRaises(Failed):
            debian.maintainer()

    def test_the_units_start_the_program_of_the_package(self) -> None:
        text = debian.unit(ROOT / "deploy" / "systemd" / "rookery.service").content.decode()
        self.assertIn("\nExecStart=/usr/bin/rookery serve ", text)
        self.assertNotIn("/usr/local/bin", text)


class Images(InFolder):
    def test_lines_of_a_dockerfile_are_joined_and_comments_left_out(self) -> None:
        text = "# a\nFROM r-base AS build\nRUN one && \\\n    # why\n    two\n"
        self.assertEqual(rootfs.instructions(text), [("FROM", "r-base AS build"), ("RUN", "one && two")])

    def test_the_dockerfile_installs_both_tarballs(self) -> None:
        lines = rootfs.instructions((ROOT / "packaging" / "image" / "Dockerfile").read_text())
        copied = next(rest for name, rest in lines if name == "COPY").split()
        self.assertEqual(copied[:-1], list(tarball.SOURCES.values()))
        installed = next(rest for name, rest in lines if name == "RUN" and "R CMD INSTALL" in rest)
        self.assertRegex(installed, r"R CMD INSTALL .*rookery_.*&& .*install_compat\(.*httpuv_")

    def test_every_instruction_of_the_dockerfile_is_known(self) -> None:
        for name, _ in rootfs.instructions((ROOT / "packaging" / "image" / "Dockerfile").read_text()):
            self.assertTrue(hasattr(rootfs.Builder, f"on_{name.lower()}"), name)

    def test_an_unknown_instruction_is_an_error(self) -> None:
        with self.assertRaisesRegex(Failed, "does not know the instruction ADD"):
            rootfs.Builder(self.folder, self.folder).build("ADD a b\n")


if __name__ == "__main__":
    unittest.main()
