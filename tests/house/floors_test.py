#!/usr/bin/env python3
"""Floors notice a counter that is too low or missing, and refuse a floors.json that says something they do not know."""
import json
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import floors  # noqa: E402


class Floors(unittest.TestCase):
    def floors_of(self, content):
        with tempfile.TemporaryDirectory() as folder:
            layer = pathlib.Path(folder, "tests", "layer")
            layer.mkdir(parents=True)
            (layer / "floors.json").write_text(json.dumps(content))
            return floors.load_floors(folder)

    def test_equal_names_add_up_and_other_text_is_ignored(self):
        self.assertEqual(floors.counters("x\nGN_COUNT a=3\n7: GN_COUNT a=4\nGN_COUNTb=5\nGN_COUNT c=x\n"), {"a": 7})

    def test_a_counter_below_its_floor_or_missing_fails(self):
        wanted = self.floors_of({"fast": {"a": 5, "b": 1}, "long": {"c": 1}})
        self.assertEqual(floors.check({"a": 5, "b": 1}, wanted, ["fast"])[1], 0)
        self.assertEqual(floors.check({"a": 4, "b": 1}, wanted, ["fast"])[1], 1)
        self.assertEqual(floors.check({"a": 5}, wanted, ["fast", "long"])[1], 2)

    def test_what_only_continuous_integration_has_is_checked_there(self):
        with unittest.mock.patch.dict(floors.os.environ, {"CI": "true"}):
            self.assertEqual(floors.with_ci(["fast", "long"]), ["fast", "long", "ci"])
            self.assertEqual(floors.with_ci(["asan"]), ["asan"])
        with unittest.mock.patch.dict(floors.os.environ, {"CI": ""}):
            self.assertEqual(floors.with_ci(["fast"]), ["fast"])

    def test_an_unknown_section_or_a_floor_of_nothing_is_refused(self):
        for content in ({"slow": {"a": 1}}, {"fast": {"a": 0}}, {"fast": {"a": "7"}}):
            with self.assertRaises(ValueError):
                self.floors_of(content)

    def test_those_of_some_folders_alone_are_asked_for(self):
        with tempfile.TemporaryDirectory() as folder:
            for layer in ("a", "b"):
                pathlib.Path(folder, "tests", layer).mkdir(parents=True)
                pathlib.Path(folder, "tests", layer, "floors.json").write_text(json.dumps({"asan": {f"of_{layer}": 1}}))
            self.assertEqual(set(floors.load_floors(folder, ["b"])["asan"]), {"of_b"})
            self.assertEqual(set(floors.load_floors(folder)["asan"]), {"of_a", "of_b"})

    def test_the_committed_floors_can_be_read(self):
        floors.load_floors()


if __name__ == "__main__":
    unittest.main()
