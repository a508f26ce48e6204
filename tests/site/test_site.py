"""Tests of the website's own tests, each of which fails for what it is there to find, and of site/build.py."""

import importlib.util
import tempfile
import unittest
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from unittest import mock

import commands
import run
from commands import Failed, Page, blocks_of
from links import check_links

# site/build.py is a script in a folder of the name of a standard module.
specification = importlib.util.spec_from_file_location("website", commands.ROOT / "site" / "build.py")
website = importlib.util.module_from_spec(specification)
specification.loader.exec_module(website)


class Browser(unittest.TestCase):
    def test_without_the_packages_of_the_browser_tests_the_failure_names_the_remedy(self):
        printed = StringIO()
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(run, "ROOT", Path(folder)), redirect_stdout(printed):
            self.assertFalse(run.browser())
        self.assertIn("make setup-test", printed.getvalue())


class Commands(unittest.TestCase):
    def run_page(self, text: str) -> dict[str, int]:
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.md"
            page.write_text(text)
            return Page(blocks_of(page)).run()

    def assert_fails(self, text: str, reason: str) -> None:
        with self.assertRaisesRegex(Failed, reason):
            self.run_page(text)

    def test_runs_shell_and_r_in_one_folder(self):
        text = "```sh\necho 'cat(1 + 1)' > two.R\n```\n\n```r\nsource('two.R')\n```\n\n<!-- run: output -->\n\n```text\n2\n```\n"
        self.assertEqual(self.run_page(text), {"sh": 1, "r": 1, "output": 1})

    def test_a_failing_command_fails(self):
        self.assert_fails("```sh\nfalse\necho after\n```\n", "ended with status 1")

    def test_an_r_error_fails(self):
        self.assert_fails("```r\nstop('no')\n```\n", "ended with status 1")

    def test_other_output_than_shown_fails(self):
        self.assert_fails("```sh\necho one\n```\n\n<!-- run: output -->\n\n```text\ntwo\n```\n", "no line 'two'")

    def test_dots_stand_for_any_text_within_a_line(self):
        shown = "```sh\nprintf 'a b c\\nd\\n'\n```\n\n<!-- run: output -->\n\n```text\n%s\n```\n"
        self.run_page(shown % "a ... c")
        self.assert_fails(shown % "a ... d", "no line")

    def test_an_unknown_language_needs_a_marker(self):
        self.assert_fails("```yaml\na: 1\n```\n", "a marker has to say")

    def test_a_command_without_a_language_fails(self):
        self.assert_fails("```\nrookery serve app\n```\n", "no language")

    def test_the_path_and_the_reason_of_elsewhere_are_checked(self):
        self.assert_fails("<!-- run: elsewhere no/such.file (because it is so) -->\n\n```sh\nx\n```\n", "does not exist")
        self.assert_fails("<!-- run: elsewhere README.md -->\n\n```sh\nx\n```\n", "not how")

    def test_a_server_that_ends_fails(self):
        self.assert_fails("<!-- run: server -->\n\n```sh\necho nothing\n```\n", "ended with status 0")

    def test_a_server_serves_until_the_end_of_the_page(self):
        serve = '<!-- run: server until "ready" -->\n\n```sh\ntrap "exit 0" TERM; touch up; echo ready; while :; do sleep 0.1; done\n```\n'
        # `exec` replaces bash by the last command, so a loop needs a bash of its own.
        serve = serve.replace("```sh\n", "```sh\nbash -c '").replace("done\n", "done'\n")
        self.assertEqual(self.run_page(serve + "\n```sh\ntest -e up\n```\n"), {"server": 1, "sh": 1})

    def test_a_replacement_must_replace_something(self):
        self.assert_fails("<!-- run: with 80 = 8080 -->\n\n```sh\ntrue\n```\n", "is not in the block")

    def test_blocks_that_knitr_runs_are_left_to_it(self):
        self.assertEqual(self.run_page("```{r}\nstop('not here')\n```\n\n```{r, eval = FALSE}\n1\n```\n"), {"r": 1})


class Links(unittest.TestCase):
    def check(self, html: str) -> tuple[bool, str]:
        with tempfile.TemporaryDirectory() as folder:
            site = Path(folder).resolve()
            (site / "index.html").write_text(html)
            (site / "other.html").write_text('<h2 id="there">There</h2>')
            with redirect_stdout(StringIO()) as said:
                return check_links(site), said.getvalue()

    def test_files_and_anchors_must_exist(self):
        self.assertTrue(self.check('<a href="other.html#there">x</a><a href="https://example.org/">y</a>')[0])
        for link, reason in [("gone.html", "no file"), ("other.html#gone", "no element"), ("#gone", "no element"), ("../x", "no file")]:
            passed, said = self.check(f'<a href="{link}">x</a>')
            self.assertFalse(passed, link)
            self.assertIn(reason, said)

    def test_nothing_is_loaded_from_elsewhere(self):
        passed, said = self.check('<script src="https://cdn.example.org/x.js"></script>')
        self.assertFalse(passed)
        self.assertIn("from elsewhere", said)


class Build(unittest.TestCase):
    def test_links_between_documents_become_links_between_pages(self):
        for link, becomes in [
            ("[x](settings.md#admin)", "[x](settings.html#admin)"),
            ("[x](SECURITY-MODEL.md)", "[x](security-model.html)"),
            ("[x](../r/vignettes/errors.Rmd)", "[x](articles/errors.html)"),
            ("[x](../deploy/nginx.conf)", "[x](deploy/nginx.conf)"),
            ("[x](../crates/http-client/README.md)", "[x](crates/rookery_http_client/index.html)"),
            ("[x](../libraries/arena/README.md)", "[x](crates/rookery_arena/index.html)"),
            ("[x](../libraries/arena/DESIGN.md#use)", "[x](arena.html#use)"),
            ("[x](https://example.org/a.md)", "[x](https://example.org/a.md)"),
            ("[x](#here)", "[x](#here)"),
            ("[x](decisions/README.md)", "x"),
            ("[x](../README.md#platforms)", "[x](manual.html#platforms)"),
            ("[x](operations/deployments.md#containers)", "[x](deployments.html#containers)"),
        ]:
            self.assertEqual(website.linked(link, "docs/operations.md"), becomes)

    def test_the_manual_has_a_page_for_each_document(self):
        listed = website.filled((commands.ROOT / "site" / "manual.md").read_text()) + (commands.ROOT / "site" / "crates.md").read_text()
        for document in [*(commands.ROOT / "docs").glob("*.md"), *(commands.ROOT / "docs").glob("operations/*.md")]:
            self.assertIn(f"({document.stem.lower()}.html)", listed)
        for library in (commands.ROOT / "libraries").iterdir():
            self.assertIn(f"({library.name}.html)", listed)

    def test_the_manual_shows_the_table_of_platforms(self):
        shown = website.filled((commands.ROOT / "site" / "manual.md").read_text())
        self.assertIn("## Platforms\n\nThis table", shown)
        self.assertIn("| the program serves a static site | run: `make test` |", shown)

    def test_the_article_about_containers_shows_the_file_that_packaging_checks(self):
        shown = website.filled((commands.ROOT / "site" / "articles" / "deploy.Rmd").read_text())
        dockerfile = (commands.ROOT / "packaging" / "image" / "Dockerfile").read_text()
        self.assertIn(f"```dockerfile\n{dockerfile}```\n", shown)
        self.assertNotIn("{{", shown)

    def test_every_vignette_has_a_place_among_the_articles(self):
        configuration = (commands.ROOT / "site" / "_pkgdown.yml").read_text()
        for vignette in (commands.ROOT / "r" / "vignettes").glob("*.Rmd"):
            self.assertIn(f"  - {vignette.stem}\n", configuration)

    def test_a_plot_has_a_bar_for_each_server_with_a_figure(self):
        http, websocket = website.PLOTS
        table = f"| | rookery | httpuv | nanonext | drogonR |\n|---|---|---|---|---|\n| {http} | 2,000 | 500 (x 4.00) | not here | 1,000 (x 2.00) |\n| {websocket} | 9 | 9 | 9 | 9 |\n"
        with mock.patch.object(website, "bench_section", return_value=table):
            first = website.plots().split("</figure>")[0]
        self.assertIn('<dt>rookery</dt><dd class=ours style="--part:1.000">2,000</dd>', first)
        self.assertIn('<dt>httpuv</dt><dd style="--part:0.250">500</dd>', first)
        self.assertNotIn("nanonext", first)

    def test_a_table_without_the_row_of_a_plot_is_refused(self):
        with mock.patch.object(website, "bench_section", return_value="| | rookery |\n|---|---|\n"), self.assertRaises(website.Refused):
            website.plots()


if __name__ == "__main__":
    unittest.main()
