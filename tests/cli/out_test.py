#!/usr/bin/env python3
"""An SSD whose node is killed is taken out of the map, writes go on without it, and it is filled with what it missed when it is back: over nodes
that are processes. Arguments: the gnstor and gnstord programs."""
import json
import os
import signal

from programs import Programs, count, main

CAPACITY = "64MiB"


class Out(Programs):
    def codes(self):
        found = self.cli("health", "--output", "json", code=None).stdout
        return {finding["code"] for finding in json.loads(found)["findings"]}

    def put(self, name, size):
        self.objects[name] = self.random.randbytes(size)
        self.cli("put", self.write(name, self.objects[name]), name)

    def verify(self):
        for name, data in self.objects.items():
            self.assertTrue(self.cli("cat", name).stdout == data, (name, "has other bytes"))
            count("objects_read_after_an_outage")

    def test_writes_go_on_without_an_ssd_that_is_silent_and_it_is_filled_when_it_is_back(self):
        self.objects = {}
        up = self.ask("up", "--nodes", "3", "--ssds", "1", "--capacity", CAPACITY)
        pids = [node["pid"] for node in up["nodes"]]
        for i in range(3):
            self.put(f"before-{i}", 700_001 * (i + 1))
        self.cli("put", self.write("gone", b"x" * 100_000), "gone")
        doomed = [f"doomed-{i}" for i in range(3)]
        for name in doomed:
            self.cli("volume", "create", name, "1MiB")
        self.kill(pids[1])
        count("kills")
        # A dead node is no SSD that has purged a volume: the deletions are in force when the SSD is out.
        for name in doomed:
            done = self.cli("volume", "delete", name, code=None)
            self.assertTrue(b"is recorded but not in force" in done.stderr if done.returncode else self.states()[1] == "out", done)
        self.until(lambda: self.states()[1] == "out", "the silent SSD is not taken out")
        self.until(lambda: self.ask("status")["pending_changes"] == 0, "the deletions are not carried out")
        self.until(lambda: self.codes() == {"GNS_SLOT_OUT", "GNS_DEGRADED"}, "health does not say that the SSD is out, and nothing else")
        self.verify()
        for i in range(3):
            self.put(f"meanwhile-{i}", 500_001 * (i + 1))
        self.cli("rm", "gone")
        self.cli("volume", "create", "v", "1MiB")
        self.verify()
        # The daemon knows it by its records, and the array is up without the SSD.
        self.kill(int((self.dir / "gnstord.pid").read_text()))
        count("kills")
        self.cli("up")
        self.until(lambda: self.states() == {0: "in", 1: "in", 2: "in"}, "the SSD that is back is not filled")
        self.until(lambda: self.ask("status")["health"] == "ok", "the array does not become healthy again")
        self.cli("cat", "gone", code=1)
        for name in doomed:  # their ids and names are free on every SSD
            self.cli("volume", "create", name, "1MiB")
        # What it missed, it has now: with each of the others away.
        for away in (0, 2):
            self.kill(self.ask("status")["nodes"][away]["pid"])
            count("kills")
            self.verify()
            self.cli("up", code=None)
            self.until(lambda: self.ask("status")["health"] == "ok", "the node that was started again does not serve")

    def test_a_node_that_hangs_is_out_and_comes_back_when_it_runs_on(self):
        self.objects = {}
        up = self.ask("up", "--nodes", "2", "--ssds", "1", "--capacity", CAPACITY)
        self.put("before", 1_000_001)
        self.cli("rm", "before")
        self.objects.clear()  # an array without volumes is no exception
        hung = up["nodes"][0]["pid"]
        os.kill(hung, signal.SIGSTOP)
        try:
            self.until(lambda: self.states()[0] == "out", "the hung SSD is not taken out")
            self.put("meanwhile", 1_500_001)
            self.verify()
        finally:
            os.kill(hung, signal.SIGCONT)
        self.until(lambda: self.states() == {0: "in", 1: "in"}, "the SSD that runs on is not filled")
        self.until(lambda: self.ask("status")["health"] == "ok", "the array does not become healthy again")
        self.kill(up["nodes"][1]["pid"])
        count("kills")
        self.verify()


if __name__ == "__main__":
    main("cli_out")
