"""The base of tests that write into a folder of their own."""

import tempfile
import unittest
from pathlib import Path


class InFolder(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
