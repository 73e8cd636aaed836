#!/usr/bin/env python3
"""The first line about a program that failed says why it did: a summary has no more than that line."""
import pathlib
import stat
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import program  # noqa: E402
from common import PeerError  # noqa: E402


class FirstLine(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.command, self.log = self.folder / "peer_example", self.folder / "example.txt"

    def write(self, script):
        self.command.write_text(f"#!/bin/sh\n{script}\n")
        self.command.chmod(self.command.stat().st_mode | stat.S_IXUSR)

    def first_line(self, script, does):
        self.write(script)
        with self.assertRaises(PeerError) as raised:
            does()
        return str(raised.exception).splitlines()[0]

    def run_it(self):
        program.run([self.command], self.log, 10)

    def test_it_has_the_programs_own_message_and_not_what_it_printed(self):
        self.log.write_text("peer_example: of an earlier run\n")
        line = self.first_line("echo printed; echo a log line >&2; echo peer_example: no answer in time >&2; exit 1", self.run_it)
        self.assertEqual(line, "peer_example ended with exit status 1: no answer in time")

    def test_it_has_what_the_log_says_of_a_connection_that_ended(self):
        line = self.first_line("echo opened >&2; echo queue pair 0x3: its connection ended, syndrome 0x15 >&2;"
                               " echo peer_example: the connection has ended >&2; exit 1", self.run_it)
        self.assertEqual(line, "peer_example ended with exit status 1: the connection has ended (log: queue pair 0x3: its connection ended, syndrome 0x15)")

    def test_it_has_the_first_line_of_a_program_without_a_message_of_its_own(self):
        self.assertEqual(self.first_line("echo out of memory >&2; echo more >&2; exit 3", self.run_it), "peer_example ended with exit status 3: out of memory")
        self.log.unlink()
        self.assertIn("it wrote nothing to its standard error", self.first_line("exit 3", self.run_it))

    def test_the_same_of_a_program_that_runs_beside_the_guest(self):
        def start():
            with program.Program([self.command], self.log):
                pass
        line = self.first_line("echo drive 0; echo peer_example: the port is taken >&2; exit 1", start)
        self.assertEqual(line, "peer_example ended with exit status 1 before it was ready: the port is taken")


if __name__ == "__main__":
    unittest.main()
