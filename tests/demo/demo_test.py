#!/usr/bin/env python3
"""The demo from outside, on input made here, whose answers are known without it: matches across block and chunk borders, damage, bad usage."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from hay import BLOCK, CHUNK, PATTERN, haystack

PROGRAM = sys.argv.pop(1)
PLANNED_KILLS = 8  # kPlan of kill.cpp
matches_compared = kills = 0


def demo(*arguments):
    return subprocess.run([PROGRAM, "--lanes", "cpu", *map(str, arguments)], capture_output=True, text=True, timeout=100)


class Demo(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = pathlib.Path(self.folder.name, "hay")

    def found(self, ended):
        return int(re.search(r"\[ok\] (\d+) matches of the kernel, \1 of grep", ended.stdout)[1])

    def test_matches_on_every_kind_of_border_are_found(self):
        global matches_compared
        size = 3 * CHUNK + 5000
        places = [0, BLOCK - 1, 2 * BLOCK - len(PATTERN), CHUNK - 1, CHUNK - 7, 2 * CHUNK - 5, 3 * CHUNK - len(PATTERN) + 1, size - len(PATTERN)]
        places = [p for i, p in enumerate(places) if not any(abs(p - q) < len(PATTERN) for q in places[:i])]
        self.file.write_bytes(haystack(size, places))
        for seed in range(3):
            ended = demo("--input", self.file, "--pattern", PATTERN.decode(), "--seed", seed, "--strict")
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
            self.assertEqual(self.found(ended), len(places))
            self.assertIn("every answer agrees", ended.stdout)
            matches_compared += len(places)

    def test_sizes_around_blocks_and_chunks_agree(self):
        global matches_compared
        for size in (len(PATTERN), BLOCK - 1, BLOCK, BLOCK + 1, CHUNK, 2 * CHUNK + 1):
            with self.subTest(size=size):
                self.file.write_bytes(haystack(size, [size - len(PATTERN)]))
                ended = demo("--input", self.file, "--pattern", PATTERN.decode())
                self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
                self.assertEqual(self.found(ended), 1)
                matches_compared += 1

    def test_overlapping_matches_are_those_of_grep(self):
        self.file.write_bytes(b"aaaaaaa\n" * 3000)
        ended = demo("--input", self.file, "--pattern", "aa")
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertEqual(self.found(ended), 3 * 3000)

    def test_a_flipped_byte_is_noticed_and_named(self):
        self.file.write_bytes(haystack(5 * CHUNK, [77]))
        ended = demo("--input", self.file, "--pattern", PATTERN.decode(), "--corrupt")
        self.assertEqual(ended.returncode, 1, ended.stdout + ended.stderr)
        self.assertRegex(ended.stdout, r"\[FAILED\] SSD in slot \d+ found 1 damaged page by its CRC")
        self.assertRegex(ended.stdout, r"\[ok\] reads posted by lanes, counted by channels: \d+;", "the read that another replica served is counted on both sides")
        self.assertIn("1 CHECK FAILED", ended.stdout)

    def test_a_process_killed_again_and_again_gives_the_same_answers(self):
        global kills, matches_compared
        size = 6 << 20
        places = [0, CHUNK - 7, 40 * CHUNK - 1, size - len(PATTERN)]
        self.file.write_bytes(haystack(size, places))
        for seed in range(3):
            ended = demo("--input", self.file, "--pattern", PATTERN.decode(), "--seed", seed, "--kill")
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
            self.assertEqual(self.found(ended), len(places))
            self.assertIn("every answer agrees", ended.stdout)
            died = ended.stdout.count("was killed (SIGKILL)")
            self.assertEqual(died, PLANNED_KILLS)
            self.assertIn(f"{died} times by SIGKILL", ended.stdout)
            read_back = re.findall(r"\[ok\] (\d+) blocks were acknowledged to killed processes and read back: 0 differ", ended.stdout)
            self.assertEqual(read_back[-1], str(size // BLOCK), "the last process must read back all blocks of its predecessors")
            kills += died
            matches_compared += len(places)

    def test_a_folder_becomes_an_archive_of_its_files(self):
        root = pathlib.Path(self.folder.name, "tree")
        for i in range(20):
            path = root / f"d{i % 3}" / ("long-name-" * 12 + str(i))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(haystack(1000 * i + 100, [i]))
        ended = demo("--input", root, "--pattern", PATTERN.decode())
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertEqual(self.found(ended), 20)
        self.assertIn("20 files", ended.stdout)
        self.assertIn("matches lie in 20 files", ended.stdout)
        self.assertIn("long-name-0 + 0", ended.stdout)

    def test_wrong_usage_ends_with_a_sentence(self):
        self.file.write_bytes(b"")
        for arguments, code, word in (
            (["--pattern", ""], 2, "pattern"), (["--pattern", "x" * 65], 2, "64"), (["--pattern", "a\nb"], 2, "line"),
            (["--ssds", "1"], 2, "--ssds"), (["--ssds", "65"], 2, "--ssds"), (["--frobnicate"], 2, "--frobnicate"),
            (["--max-bytes", "many"], 2, "many"), (["--input", "/nonexistent"], 1, "/nonexistent"), (["--input", self.file], 2, "empty"), (["--kill", "--corrupt"], 2, "--corrupt"),
        ):
            with self.subTest(arguments=arguments):
                ended = demo(*arguments)
                self.assertEqual(ended.returncode, code, ended.stdout + ended.stderr)
                self.assertIn(word, ended.stderr)


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    print(f"GN_COUNT demo_kills={kills}")
    print(f"GN_COUNT demo_matches_compared={matches_compared}")
    sys.exit(0 if result.wasSuccessful() else 1)
