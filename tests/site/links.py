"""Checks the links of the website: every file that a page refers to exists, and every anchor is an element of its page.

Links to other sites are only counted and listed, since nothing here may depend on them. Of the crates' documentation, whose
anchors rustdoc itself checks, only the files are checked.
"""

from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Reader(HTMLParser):
    """Collects what a page refers to, and its ids."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[tuple[str, str]] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name == "id" or (name == "name" and tag == "a"):
                self.ids.add(value or "")
            elif name in ("href", "src") and value is not None:
                self.references.append((tag, value))


def read(page: Path) -> Reader:
    reader = Reader()
    reader.feed(page.read_text(encoding="utf-8", errors="replace"))
    return reader


def check_links(site: Path) -> bool:
    """Prints what is wrong, and returns whether nothing is."""
    # The examples are apps, whose links are right when they are served.
    pages = {page: read(page) for page in sorted(site.rglob("*.html")) if page.relative_to(site).parts[0] != "examples"}
    if not any("crates" not in page.relative_to(site).parts for page in pages):
        print(f"FAILED there are no pages in {site}: run `make site`")
        return False
    wrong, hosts, count = [], Counter(), 0
    for page, reader in pages.items():
        name = page.relative_to(site)
        is_crate = name.parts[0] == "crates"
        for tag, reference in reader.references:
            link = urlsplit(reference)
            if link.scheme or link.netloc:
                hosts[link.netloc or link.scheme] += 1
                if tag in ("link", "script", "img"):
                    wrong.append(f"{name}: loads {reference} from elsewhere")
                continue
            count += 1
            if is_crate and "trait.impl" in link.path:
                continue  # rustdoc refers to a list of other crates' implementors, and writes none if there are none.
            target = (page.parent / unquote(link.path)).resolve() if link.path else page
            if target.is_dir():
                target = target / "index.html"
            if not target.is_file() or site not in target.parents:
                wrong.append(f"{name}: {reference} leads to no file")
            elif link.fragment and target in pages and not is_crate and unquote(link.fragment) not in pages[target].ids:
                wrong.append(f"{name}: {reference} leads to no element")
    for line in sorted(set(wrong)):
        print(f"FAILED {line}")
    print(f"links: {count} within the website, {len(pages)} pages, {len(set(wrong))} wrong; to other sites, not checked:")
    print("  " + ", ".join(f"{host} {number}" for host, number in hosts.most_common()))
    return not wrong
