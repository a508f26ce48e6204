"""Packs the program, its manual and the units of deploy/systemd into a Debian package."""

import gzip
import hashlib
import os
import re
import tempfile
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

import archive
from common import ROOT, Failed, File, epoch, run, version
from program import Target

HERE = Path(__file__).resolve().parent / "debian"
SCRIPTS = ("postinst", "prerm", "postrm")
DOC = "usr/share/doc/rookery"


def description(tree: Path, field: str) -> str:
    """Returns a field of the R package's DESCRIPTION, in which the maintainer is named."""
    text = (tree / "r" / "DESCRIPTION").read_text()
    found = re.search(rf"^{field}: *(.*(?:\n[ \t].*)*)", text, re.M)
    return found[1] if found else ""


def maintainer(tree: Path = ROOT) -> str:
    """Returns the maintainer (`cre`) as `Name <address>`."""
    people = description(tree, "Authors@R")
    for person in re.findall(r"person\(((?:[^()]|\([^()]*\))*)\)", people):
        mail = re.search(r'email *= *"([^"]+)"', person)
        if '"cre"' in person and mail:
            names = re.findall(r'"([^"]+)"', person.split("role")[0].split("email")[0])
            return f"{' '.join(names)} <{mail[1]}>"
    raise Failed("Authors@R in r/DESCRIPTION names no maintainer (role \"cre\") with an address")


def homepage(tree: Path = ROOT) -> str:
    found = re.search(r'^repository = "([^"]+)"', (tree / "Cargo.toml").read_text(), re.M)
    return found[1] if found else ""


def compressed(content: str | bytes) -> File:
    content = content.encode() if isinstance(content, str) else content
    return File(gzip.compress(content, 9, mtime=0))


def unit(path: Path) -> File:
    text = path.read_text()
    if path.suffix == ".service" and "/usr/local/bin/rookery" not in text:
        raise Failed(f"{path} does not start /usr/local/bin/rookery, which this package replaces by /usr/bin/rookery")
    note = f"# Of the package rookery. Make changes with: systemctl edit {path.name}\n"
    return File(note + text.replace("/usr/local/bin/rookery", "/usr/bin/rookery"))


def contents(target: Target, program: Path, runnable: Path, tree: Path) -> dict[str, File]:
    """Returns the files that the package installs, by their paths."""
    date, release = epoch(tree), version(tree)
    texts, legal = archive.generated(runnable), archive.legal(target, tree)
    licence = legal["LICENSE"].content.decode()
    changes = (
        f"rookery ({release}-1) unstable; urgency=medium\n\n  * The release {release}; changelog.gz lists the changes.\n\n"
        f" -- {maintainer(tree)}  {format_datetime(datetime.fromtimestamp(date, UTC))}\n"
    )
    body = licence.split("\n\n", 2)[2]
    facts = {
        "HOMEPAGE": homepage(tree),
        "COPYRIGHT": re.search(r"^Copyright \(c\) (.*)$", licence, re.M)[1],
        "LICENCE": "\n".join(f" {line}" if line else " ." for line in body.strip().splitlines()),
    }
    return {
        "usr/bin/rookery": File(program, is_program=True),
        "usr/lib/systemd/system/rookery.service": unit(tree / "deploy" / "systemd" / "rookery.service"),
        "usr/lib/systemd/system/rookery.socket": unit(tree / "deploy" / "systemd" / "rookery.socket"),
        "etc/logrotate.d/rookery": File(tree / "deploy" / "systemd" / "logrotate"),
        "usr/share/man/man1/rookery.1.gz": compressed(texts["man/rookery.1"].content),
        "usr/share/bash-completion/completions/rookery": texts["completions/rookery.bash"],
        "usr/share/fish/vendor_completions.d/rookery.fish": texts["completions/rookery.fish"],
        "usr/share/zsh/vendor-completions/_rookery": texts["completions/_rookery"],
        f"{DOC}/copyright": File(filled((HERE / "copyright").read_text(), facts)),
        f"{DOC}/NOTICES.txt.gz": compressed(legal["THIRD-PARTY-LICENSES.txt"].content),
        f"{DOC}/changelog.gz": compressed((tree / "CHANGELOG.md").read_bytes()),
        f"{DOC}/changelog.Debian.gz": compressed(changes),
    }


def filled(text: str, facts: dict[str, str]) -> str:
    return re.sub(r"\$([A-Z]+)\b", lambda name: facts[name[1]], text)


def make(target: Target, program: Path, runnable: Path, out: Path, tree: Path = ROOT) -> Path:
    """Writes the Debian package of the target's program into the folder `out`, and returns its path."""
    if target.debian is None:
        raise Failed(f"{target.triple} is not an architecture of Debian")
    date, release = epoch(tree), version(tree)
    files = contents(target, program, runnable, tree)
    facts = {
        "VERSION": release,
        "ARCHITECTURE": target.debian,
        "MAINTAINER": maintainer(tree),
        "HOMEPAGE": homepage(tree),
        "GLIBC": target.glibc,
        "SIZE": str(sum(-(-len(file.content) // 1024) for file in files.values())),
    }
    control = {name: File(HERE / name, is_program=True) for name in SCRIPTS}
    control["control"] = File(filled((HERE / "control").read_text(), facts))
    control["conffiles"] = File("".join(f"/{path}\n" for path in sorted(files) if path.startswith("etc/")))
    control["md5sums"] = File(
        "".join(f"{hashlib.md5(file.content).hexdigest()}  {path}\n" for path, file in sorted(files.items()) if not path.startswith("etc/"))
    )
    path = out / f"rookery_{release}-1_{target.debian}.deb"
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        for name, file in {**files, **{f"DEBIAN/{name}": file for name, file in control.items()}}.items():
            place = Path(folder, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.content)
            place.chmod(file.mode)
        for place in (Path(folder), *Path(folder).rglob("*")):
            if place.is_dir():
                place.chmod(0o755)
            os.utime(place, (date, date))
        run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", folder, path], env=os.environ | {"SOURCE_DATE_EPOCH": str(date)})
    return path
