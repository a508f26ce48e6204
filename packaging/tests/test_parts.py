"""Tests of what makes the artefacts, without a build: python3 -m unittest discover -s packaging/tests."""

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import sys
import tarfile
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
import tarball  # noqa: E402
import versions  # noqa: E402
import wheel  # noqa: E402
from common import ROOT, TOOLS, Failed, File, epoch, load, run, tar_gz, use_tools, version, zip_file  # noqa: E402
from folder import InFolder  # noqa: E402
from image import rootfs  # noqa: E402

DATE = 1_700_000_000


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


class Tools(unittest.TestCase):
    def test_the_tools_that_setup_installs_are_found(self) -> None:
        with mock.patch.dict(os.environ, {"PATH": "/usr/bin"}):
            use_tools()
            self.assertEqual(os.environ["PATH"].split(os.pathsep), [*map(str, TOOLS), "/usr/bin"])
        self.assertIn("zig=${ZIG_VENV:-$PWD/.local/zig}", (ROOT / "scripts" / "setup").read_text())


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
        # The release of yasna has no text. It may be used under Apache-2.0, whose text is that of another crate.
        self.assertRegex("".join(without), r"^These crates contain no text of their licence, and name it only: yasna [0-9.]+$")
        self.assertIn("Apache License", text)
        # The last one is of mimalloc, whose licence is beside its C code.
        for name in ("ring 0.17", "uPlot", "Copyright (c) 2022 Leon Sorokin", "hyper 1", "Daan Leijen", "http 1.5"):
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


class Tarballs(InFolder):
    def test_the_documents_name_the_tarball_of_httpuv(self) -> None:
        name = f"httpuv_{re.search(r'^Version: (.+)$', (ROOT / 'compat/httpuv/DESCRIPTION').read_text(), re.M)[1]}.tar.gz"
        for path in ("r/vignettes/from-httpuv.Rmd", "r/R/use-compat.R"):
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
