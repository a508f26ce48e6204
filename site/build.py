#!/usr/bin/env python3
"""Builds the website: pkgdown's pages for the R package, the manual from docs/, and the crates' API documentation.

    site/build.py [FOLDER]      default: .local/site

pkgdown needs one package folder with everything in it. This script assembles it in .local/site-source: the R package, the
articles of site/articles beside its vignettes, and pages from docs/ and the README, whose links it adapts. The plots are drawn
from the README's table, which bench/run.py --readme writes, so that no figure is typed by hand. Nothing is downloaded.
"""

import html
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "site"
SOURCE = ROOT / ".local" / "site-source"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))

# The files of the repository that become pages at the root of the website, with the names of the pages.
PAGES = {str(path.relative_to(ROOT)): path.stem.lower() for pattern in ("*.md", "operations/*.md") for path in (ROOT / "docs").glob(pattern)} | {
    f"libraries/{path.parent.name}/DESIGN.md": path.parent.name for path in (ROOT / "libraries").glob("*/DESIGN.md")
} | {
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributing",
    "README.md": "index",
}
# Parts of the README that are on another page than the front page.
PARTS = {"README.md#platforms": "manual.html#platforms"}
# Folders whose files are on the website as they are.
COPIED = ("deploy", "examples")
# The rows of the README's table that the front page plots. In both, no server stalls.
PLOTS = {
    "hello world, `Connection: close`, 10 clients: requests/s": ("HTTP requests per second", "a connection each"),
    "WebSocket echo of 64 B, 10 connections: messages/s": ("WebSocket messages per second", "echo of 64 B"),
}


class Refused(Exception):
    """The reason for which there is no website."""


# --- Links ---


def linked(text: str, file: str) -> str:
    """Replaces the links of a Markdown file by links within the website. What is not on the website loses its link."""

    def replace(match: re.Match) -> str:
        mark, label, target = match.groups()
        path, hash_mark, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or not path:
            return match[0]
        there = os.path.relpath((ROOT / file).parent / path, ROOT)
        if part := PARTS.get(f"{there}#{anchor}"):
            return f"{mark}[{label}]({part})"
        if there in PAGES:
            return f"{mark}[{label}]({PAGES[there]}.html{hash_mark}{anchor})"
        if there.startswith("r/vignettes/"):
            return f"{mark}[{label}](articles/{Path(there).stem}.html{hash_mark}{anchor})"
        if there.startswith(("crates/", "libraries/")) and (crate := there.split("/")[1]):
            return f"{mark}[{label}](crates/rookery_{crate.replace('-', '_')}/index.html)"
        if there.startswith(COPIED) and (ROOT / there).is_file():
            return f"{mark}[{label}]({there})"
        if there.endswith(".svg"):
            return f"{mark}[{label}](pictures/{Path(there).name})"
        return label

    return re.sub(r"(!?)\[([^\]]+)\]\(([^)\s]+)\)", replace, text)


# --- Figures ---


def bench_section() -> str:
    """Returns what bench/run.py --readme has written into the README."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- bench:begin -->\n(.*)<!-- bench:end -->", readme, re.S)
    if not found:
        raise Refused("README.md has no table between bench:begin and bench:end: run bench/run.py --readme README.md")
    return found[1]


def platforms() -> str:
    """Returns the README's section about what was run on which system."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    if not (found := re.search(r"^## Platforms\n(.*?)^## ", readme, re.M | re.S)):
        raise Refused("README.md has no section `Platforms`, which site/manual.md shows")
    return linked(found[1].strip(), "README.md")


def plots() -> str:
    """Returns the plots of the front page as HTML."""
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in bench_section().splitlines() if line[:1] == "|"]
    servers, rows = lines[0][-4:], {line[0]: line[1:] for line in lines[2:]}
    drawn = []
    for label, (title, detail) in PLOTS.items():
        if label not in rows:
            raise Refused(f"the table of README.md has no row '{label}', which site/build.py plots")
        # A server that was not installed where the table was measured has no bar.
        cells = [(server, found[0]) for server, cell in zip(servers, rows[label], strict=True) if (found := re.match(r"[\d,]+", cell))]
        most = max(int(text.replace(",", "")) for _, text in cells)
        bars = "".join(
            f'<dt>{html.escape(server)}</dt><dd{" class=ours" if server == "rookery" else ""} '
            f'style="--part:{int(text.replace(",", "")) / most:.3f}">{text}</dd>'
            for server, text in cells
        )
        drawn.append(f'<figure class="plot"><figcaption>{title} <small>{detail}</small></figcaption><dl>{bars}</dl></figure>')
    return "\n".join(drawn)


def crates() -> str:
    """Returns the table of the crates."""
    rows = []
    for manifest in sorted([*(ROOT / "crates").glob("*/Cargo.toml"), *(ROOT / "libraries").glob("*/Cargo.toml")], key=lambda path: path.parent.name):
        about = tomllib.loads(manifest.read_text(encoding="utf-8"))
        name = about.get("lib", {}).get("name", about["package"]["name"]).replace("-", "_")
        if (TARGET / "doc" / name / "index.html").exists():
            rows.append(f"| [{about['package']['name']}](crates/{name}/index.html) | {about['package']['description']} |")
    return "\n".join(["| crate | contents |", "|---|---|", *rows])


# --- Assembly ---


def filled(text: str) -> str:
    """Replaces the placeholders of a page: `{{plots}}`, `{{crates}}`, `{{bench}}`, `{{platforms}}`, `{{picture NAME}}` for
    a drawing, and `{{file PATH}}` for a file of the repository."""

    def picture(match: re.Match) -> str:
        return "```{=html}\n" + (HERE / "pictures" / f"{match[1]}.svg").read_text(encoding="utf-8").rstrip() + "\n```"

    def file(match: re.Match) -> str:
        return (ROOT / match[1]).read_text(encoding="utf-8").rstrip()

    for mark, make in (("{{plots}}", plots), ("{{crates}}", crates), ("{{bench}}", bench_section), ("{{platforms}}", platforms)):
        text = text.replace(mark, make()) if mark in text else text
    return re.sub(r"\{\{file (\S+)\}\}", file, re.sub(r"\{\{picture (\S+)\}\}", picture, text))


def assemble() -> None:
    """Writes the package folder that pkgdown reads."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    for name in ("DESCRIPTION", "NAMESPACE", "LICENSE"):
        shutil.copy(ROOT / "r" / name, SOURCE)
    for name in ("R", "man", "vignettes"):
        shutil.copytree(ROOT / "r" / name, SOURCE / name)
    shutil.copytree(HERE / "templates", SOURCE / "pkgdown" / "templates")
    for name in ("extra.css", "extra.js"):
        shutil.copy(HERE / name, SOURCE / "pkgdown")

    assets = SOURCE / "pkgdown" / "assets"
    shutil.copytree(HERE / "pictures", assets / "pictures", ignore=shutil.ignore_patterns("*.mjs"))
    for picture in (ROOT / "docs" / "pictures").glob("*.svg"):
        shutil.copy(picture, assets / "pictures")
    shutil.copy(ROOT / "examples" / "shared" / "favicon.svg", assets)

    for article in (HERE / "articles").glob("*.Rmd"):
        (SOURCE / "vignettes" / article.name).write_text(filled(article.read_text(encoding="utf-8")), encoding="utf-8")
    for file, page in PAGES.items():
        if page != "index":
            (SOURCE / f"{page}.md").write_text(linked((ROOT / file).read_text(encoding="utf-8"), file), encoding="utf-8")
    for page in HERE.glob("*.md"):
        (SOURCE / page.name).write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")

    # Vignettes that the configuration does not name yet are listed at the end.
    config = (HERE / "_pkgdown.yml").read_text(encoding="utf-8")
    unnamed = [path.stem for path in sorted((ROOT / "r" / "vignettes").glob("*.Rmd")) if f"- {path.stem}\n" not in config]
    listed = "".join(f"  - {name}\n" for name in unnamed)
    config = re.sub(r"# Vignettes that are not listed above.*?\[\]\n", f"- title: More\n  contents:\n{listed}" if unnamed else "", config, flags=re.S)
    (SOURCE / "_pkgdown.yml").write_text(config, encoding="utf-8")


def build(into: Path) -> None:
    """Runs pkgdown, and adds what pkgdown does not make."""
    shutil.rmtree(into, ignore_errors=True)
    # pkgdown and downlit look for pages of other packages, and read CRAN's table of packages. A proxy that refuses every
    # connection ends the former at once, and an empty table replaces the latter. From 2.1 on, pkgdown downloads the scripts of
    # its own templates, which the website does not use.
    offline = {"PKGDOWN_INTERNET": "FALSE", "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.1,localhost"}
    code = f"""
        options(warn = 1)
        utils::assignInNamespace("CRAN_urls", function() data.frame(Package = character(), URL = character()), "downlit")
        if (exists("external_dependencies", asNamespace("pkgdown"), inherits = FALSE)) {{
          utils::assignInNamespace("external_dependencies", function(...) list(), "pkgdown")
        }}
        pkgdown::build_site(
          "{SOURCE}", devel = FALSE, install = FALSE, new_process = FALSE, preview = FALSE, override = list(destination = "{into}")
        )
    """
    library = os.environ.get("ROOKERY_LIB", str(ROOT / ".local" / "lib"))
    done = subprocess.run(
        [ROOT / "scripts" / "with-rookery", library, "Rscript", "--no-environ", "-e", code],
        env=os.environ | offline | {"LC_ALL": "C.UTF-8"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )
    if done.returncode != 0:
        raise Refused(f"pkgdown failed:\n{done.stdout[-6000:]}")
    if warnings := [line for line in done.stdout.splitlines() if "Missing images" in line or "Failed to parse" in line]:
        raise Refused("\n".join(warnings))

    for folder in COPIED:
        shutil.copytree(ROOT / folder, into / folder)
    for page in into.rglob("*.html"):
        # pkgdown's place for a logo, which the bar already shows.
        page.write_text(re.sub(r'<img src="" class="logo" alt="">', "", page.read_text(encoding="utf-8")), encoding="utf-8")
    # A script, because a page that is opened as a file may not fetch JSON. Pages without sections are empty entries.
    entries = [entry for entry in json.loads((into / "search.json").read_text(encoding="utf-8")) if entry.get("path")]
    (into / "search.js").write_text(f"window.searchIndex = {json.dumps(entries, ensure_ascii=False)};\n", encoding="utf-8")
    for unused in ("search.json", "sitemap.xml", "pkgdown.js", "lightswitch.js", "katex-auto.js", "link.svg", "deps", "docsearch.json"):
        path = into / unused
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    shutil.copytree(TARGET / "doc", into / "crates", ignore=shutil.ignore_patterns(".lock"))
    (into / "crates" / "index.html").write_text('<!DOCTYPE html><meta http-equiv="refresh" content="0; url=../crates.html">', encoding="utf-8")
    for page in (into / "crates").rglob("*.html"):
        # Comments that a type inherits from a dependency have links that only resolve beside its documentation.
        text = page.read_text(encoding="utf-8")
        if (without := re.sub(r' href="(?:(?:super|crate|self)::|dispatcher#)[^"]*"', "", text)) != text:
            page.write_text(without, encoding="utf-8")


def main() -> int:
    into = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / ".local" / "site").resolve()
    try:
        if not (TARGET / "doc" / "rookery_server" / "index.html").exists():
            raise Refused(f"{TARGET}/doc has no documentation of the crates: run `make site`")
        assemble()
        build(into)
    except Refused as reason:
        print(f"site: {reason}", file=sys.stderr)
        return 1
    pages = sum(1 for path in into.rglob("*.html") if "crates" not in path.relative_to(into).parts)
    print(f"site: {pages} pages and the crates' documentation are in {into}; open {into}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
