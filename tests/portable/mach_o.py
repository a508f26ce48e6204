#!/usr/bin/env python3
"""Checks the files for macOS that were linked on another system.

    tests/portable/mach_o.py program MACOS FILE
    tests/portable/mach_o.py core MACOS FILE NAME
    tests/portable/mach_o.py package MACOS FILE CORE SYMBOLS

MACOS is the oldest version for which the file must be built. `core` is the
library of the R package, and NAME its install name without `@rpath/`.
`package` is rookery.so, which must find CORE by its own path. What neither
CORE nor the system has must be in R, whose symbols the file SYMBOLS lists.
"""

import os
import struct
import sys

EXECUTABLE, LIBRARY = 2, 6
KINDS = {EXECUTABLE: "a program", LIBRARY: "a dynamic library"}
ARCHITECTURES = {0x01000007: "x86_64", 0x0100000C: "arm64"}
# Commands of the loader (mach-o/loader.h).
SYMTAB, LOAD_DYLIB, ID_DYLIB, CODE_SIGNATURE = 0x02, 0x0C, 0x0D, 0x1D
VERSION_MIN_MACOSX, BUILD_VERSION, RPATH = 0x24, 0x32, 0x8000001C
# The library of an undefined symbol is looked up when the file is loaded. Apple's
# linker writes the second number into the list of symbols, and zig's the first.
DYNAMIC_LOOKUP = (0, 0xFE)


class MachO:
    """The parts of a Mach-O file that the loader uses."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        magic, cpu, _, self.kind, count = struct.unpack_from("<5I", self.data)
        assert magic == 0xFEEDFACF, f"{path} is no Mach-O file of 64 bits"
        self.architecture = ARCHITECTURES[cpu]
        self.name, self.libraries, self.rpaths = None, [], []
        self.oldest, self.is_signed = None, False
        self.exports, self.undefined = set(), {}
        at = 32
        for _ in range(count):
            command, size = struct.unpack_from("<2I", self.data, at)
            self.read_command(command, at)
            at += size

    def read_command(self, command, at):
        if command == ID_DYLIB:
            self.name = self.text(at, at + 8)
        elif command == LOAD_DYLIB:
            self.libraries.append(self.text(at, at + 8))
        elif command == RPATH:
            self.rpaths.append(self.text(at, at + 8))
        elif command == CODE_SIGNATURE:
            self.is_signed = True
        elif command in (BUILD_VERSION, VERSION_MIN_MACOSX):
            version = self.number(at + (12 if command == BUILD_VERSION else 8))
            self.oldest = f"{version >> 16}.{version >> 8 & 255}"
        elif command == SYMTAB:
            self.read_symbols(*struct.unpack_from("<4I", self.data, at + 8))

    def read_symbols(self, symbols, count, strings, _):
        for index in range(count):
            name, kind, _, description, _ = struct.unpack_from(
                "<IBBHQ", self.data, symbols + 16 * index
            )
            # Neither a line of a debugger nor a symbol of this file alone.
            if kind & 0xE0 or kind & 0x10 or not kind & 0x01:
                continue
            text = self.string(strings + name)
            if kind & 0x0E == 0:
                self.undefined[text] = description >> 8
            else:
                self.exports.add(text)

    def number(self, at):
        return struct.unpack_from("<I", self.data, at)[0]

    def string(self, at):
        return self.data[at : self.data.index(b"\0", at)].decode()

    def text(self, command, field):
        """Returns a text whose offset in a command is in a field of it."""
        return self.string(command + self.number(field))

    def library_of(self, symbol):
        """Returns the library that has an undefined symbol, or None for R."""
        at = self.undefined[symbol]
        return None if at in DYNAMIC_LOOKUP else self.libraries[at - 1]


def check(is_right, message):
    if not is_right:
        sys.exit(f"mach_o: {sys.argv[3]}: {message}")


def is_of_system(library):
    return library.startswith(("/usr/lib/", "/System/Library/"))


def check_file(file, kind, oldest):
    check(file.kind == kind, f"is not {KINDS[kind]}")
    check(file.oldest == oldest, f"is for macOS {file.oldest}, not {oldest}")
    # macOS does not load other files on this processor.
    check(file.is_signed or file.architecture != "arm64", "has no signature")


def check_alone(file):
    """Checks that a file needs nothing but libraries of the system."""
    foreign = [library for library in file.libraries if not is_of_system(library)]
    check(not foreign, f"needs {foreign}")
    missing = [name for name in file.undefined if file.library_of(name) is None]
    check(not missing, f"has undefined symbols: {missing}")


def program(oldest, file):
    check_file(file, EXECUTABLE, oldest)
    check_alone(file)


def core(oldest, file, name):
    check_file(file, LIBRARY, oldest)
    check(file.name == f"@rpath/{name}", f"has the install name {file.name}")
    check_alone(file)
    check("_rookery_main" in file.exports, "has no rookery_main")


def package(oldest, file, core_path, symbols):
    check_file(file, LIBRARY, oldest)
    name = f"@rpath/{os.path.basename(core_path)}"
    check(name in file.libraries, f"does not load {name}, but {file.libraries}")
    check(file.rpaths == ["@loader_path/core"], f"has the rpaths {file.rpaths}")
    check("_R_init_rookery" in file.exports, "has no R_init_rookery")
    core_exports = MachO(core_path).exports
    with open(symbols) as lines:
        of_r = {f"_{line.split()[0]}" for line in lines if line.strip()}
    used = set()
    for symbol in file.undefined:
        library = file.library_of(symbol)
        used.add(library)
        if library is None:
            check(symbol in of_r, f"needs {symbol}, which R does not have")
        elif library == name:
            check(symbol in core_exports, f"needs {symbol}, which the core does not have")
        else:
            check(is_of_system(library), f"needs {symbol} of {library}")
    check({None, name} <= used, "uses nothing of R or of the core")


def main():
    what, oldest, path, *rest = sys.argv[1:]
    file = MachO(path)
    {"program": program, "core": core, "package": package}[what](oldest, file, *rest)
    print(f"{path}: {KINDS[file.kind]} for {file.architecture}, macOS {file.oldest}")


if __name__ == "__main__":
    main()
