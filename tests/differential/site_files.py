"""The folder of files that both sides serve."""

import os

# A date that is over, so that If-Modified-Since has something to compare.
MODIFIED = 1_700_000_000

FILES = {
    "index.html": b"<p>the index</p>\n",
    "page.html": b"<p>a page</p>\n",
    "UPPER.HTML": b"<p>upper</p>\n",
    "text.txt": b"some text\n",
    "style.css": b"p { color: red }\n",
    "script.js": b"1\n",
    "module.mjs": b"2\n",
    "data.json": b"{}\n",
    "image.svg": b"<svg/>\n",
    "image.png": bytes(range(256)) * 4,
    "icon.ico": b"\0\0\1\0",
    "table.csv": b"a,b\n",
    "notes.md": b"# notes\n",
    "code.R": b"1 + 1\n",
    "app.wasm": b"\0asm",
    "font.woff2": b"wOF2",
    "feed.xml": b"<a/>\n",
    "map.map": b"{}",
    "noextension": b"plain\n",
    ".hidden": b"dot\n",
    "empty.txt": b"",
    "large.bin": bytes(range(256)) * 1024,
    "with space.txt": b"a space\n",
    "f\u00f6l.txt": "f\u00f6l\n".encode(),
    "..foo": b"dots\n",
    "sub/index.html": b"<p>sub</p>\n",
    "sub/file.txt": b"sub file\n",
    "sub/deeper/file.txt": b"deeper\n",
    "noindex/file.txt": b"no index here\n",
    "secret/file.txt": b"secret\n",
}


def write(folder):
    """Writes the files, all of one age, and returns the folder's path."""
    folder = os.path.realpath(folder)
    for name, content in FILES.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        os.utime(path, (MODIFIED, MODIFIED))
    return folder
