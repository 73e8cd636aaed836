#!/usr/bin/env python3
"""A lost SSD is replaced by an empty one while the array runs: gnstor ssd replace, over nodes that are processes.
Arguments: the gnstor and gnstord programs."""
import json
import subprocess

from programs import DEADLINE_S, GNSTOR, Programs, count, main

CAPACITY = "64MiB"


class Replace(Programs):
    def spares(self):
        return [ssd for ssd in self.ask("ssd", "list")["ssds"] if ssd["state"] == "spare"]

    def lose(self, node, slot):
        """Kills the node and puts an empty store in place of the one of its only SSD."""
        self.kill(node["pid"])
        count("kills")
        store = self.dir / f"node-{slot}" / "ssd-0.store"
        store.unlink()
        self.cli("ssd", "format", str(store), "--capacity", CAPACITY)

    def read_without(self, node, objects):
        self.kill(self.ask("status")["nodes"][node]["pid"])
        count("kills")
        for name, data in objects.items():
            self.assertTrue(self.cli("cat", name).stdout == data, (name, "other bytes without node", node))
            count("objects_read_from_the_new_ssd")

    def test_a_lost_ssd_is_replaced_while_the_array_runs(self):
        up = self.ask("up", "--nodes", "3", "--ssds", "1", "--capacity", CAPACITY)
        objects = {f"object-{i}": self.random.randbytes(700_001 * (i + 1)) for i in range(4)}
        for name, data in objects.items():
            self.cli("put", self.write(name, data), name)
        self.cli("ssd", "replace", "9", code=1, says="has no slot 9")
        self.cli("ssd", "replace", "64", code=2)
        self.cli("ssd", "replace", "1", code=1, says="of slot 1 serves")
        self.assertEqual(self.states(), {0: "in", 1: "in", 2: "in"}, "a refused replacement changes nothing")
        self.lose(up["nodes"][1], 1)
        self.cli("ssd", "replace", "1", code=1, says="there is no spare")
        self.cli("up", code=None)  # the node runs again; the array does not serve as a whole yet
        self.until(self.spares, "gnstord does not find the empty SSD of the node that was started again")
        # A reader that is under way, and one that comes later, see nothing of it.
        reader = subprocess.Popen([GNSTOR, "cat", "object-3"], env=self.env, bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        first = reader.stdout.read(1)
        self.cli("ssd", "replace", "1", says="slot 1 is filled")
        rest, _ = reader.communicate(timeout=DEADLINE_S)
        self.assertTrue((reader.returncode, first + rest) == (0, objects["object-3"]), "a reader during the rebuild got other bytes")
        self.assertEqual((self.states(), self.spares()), ({0: "in", 1: "in", 2: "in"}, []))
        self.assertNotIn("rebuild", self.ask("status"))
        self.cli("health", says="health: ok")
        self.cli("put", self.write("late", b"after" * 1000), "late")
        objects["late"] = b"after" * 1000
        # What only the new SSD and a dead one hold, the new one serves; also after a restart, which knows it by the records.
        self.read_without(0, objects)
        self.cli("down")
        self.cli("up")
        self.read_without(2, objects)

    def test_a_daemon_that_is_killed_during_a_rebuild_continues_it(self):
        up = self.ask("up", "--nodes", "3", "--ssds", "1", "--capacity", CAPACITY)
        data = self.random.randbytes(8_000_000)
        self.cli("put", self.write("data", data), "data")
        self.cli("volume", "create", "large", "8GiB")  # unwritten blocks: they lengthen the rebuild
        self.lose(up["nodes"][2], 2)
        self.cli("up", code=None)
        self.until(self.spares, "gnstord does not find the empty SSD of the node that was started again")
        self.cli("ssd", "replace", "2", "--no-wait", says="is being filled")
        self.cli("status", says="slot 2 is being filled from the other replicas")
        health = json.loads(self.cli("health", "--output", "json", code=1).stdout)
        self.assertIn("GNS_REBUILDING", [finding["code"] for finding in health["findings"]])
        self.cli("ssd", "replace", "0", code=1)
        self.kill(int((self.dir / "gnstord.pid").read_text()))
        count("kills")
        self.cli("up", code=None)
        self.cli("volume", "delete", "large")  # ends the rebuild of it
        self.until(lambda: self.states() == {0: "in", 1: "in", 2: "in"}, "the rebuild does not end")
        self.until(lambda: self.ask("status")["health"] == "ok", "the array does not become healthy again")
        self.read_without(0, {"data": data})


if __name__ == "__main__":
    main("cli_replace")
