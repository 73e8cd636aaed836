#!/usr/bin/env python3
"""gnstor ssd format, info, check, recover: stores made, looked at and refused; block devices (loop devices, where this machine lets us)
with real file systems on them. Arguments: the gnstor and gnstord programs."""
import json
import os
import pathlib
import shutil
import subprocess

from programs import Programs, count, main

SMALL = ("--capacity", "8MiB", "--unit-pages", "32")


class Ssd(Programs):
    def setUp(self):
        super().setUp()
        self.loops = []

    def tearDown(self):
        for mount in self.mounts:
            subprocess.run(["umount", str(mount)], check=False)
        self.mounts = []
        for loop in self.loops:
            subprocess.run(["losetup", "-d", loop], check=False)
        super().tearDown()

    def loop(self, megabytes=64):
        """A file of zeroes as a block device, and that file; (None, None) where this cannot be had."""
        backing = self.root / f"disk{len(self.loops)}"
        with open(backing, "wb") as f:
            f.truncate(megabytes << 20)
        if shutil.which("losetup") is None:
            return None, None
        done = subprocess.run(["losetup", "-f", "--show", str(backing)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"this machine has no loop devices ({done.stderr.strip()}): {self.id()} runs without them")
            return None, None
        self.loops.append(done.stdout.strip())
        count("devices")
        return done.stdout.strip(), backing

    def format(self, path, *more, **how):
        return self.ask("ssd", "format", path, *more, **how)

    def test_a_store_is_made_as_asked_for_and_says_so(self):
        path = self.root / "s"
        made = self.format(path, "--capacity", "24MiB", "--serial", "SN-7", "--unit-pages", "64", "--over-provisioning", "12",
                           "--service-units", "2", "--channels", "8", "--dies", "4")
        self.assertEqual([made[k] for k in ("capacity_bytes", "serial", "pages_per_unit", "over_provisioning_percent", "service_units",
                                            "channels", "dies_per_channel", "state")],
                         [24 << 20, "SN-7", 64, 12, 2, 8, 4, "clean"])
        self.assertEqual(made["store_bytes"], path.stat().st_size)
        told = self.ask("ssd", "info", path)
        self.assertEqual({k: v for k, v in made.items() if k not in ("path", "replaced")}, told)
        self.assertIn(b"SN-7", self.cli("ssd", "info", path).stdout)
        self.assertIn(b"SN-7", self.cli("ssd", "format", self.root / "t", *SMALL, "--serial", "SN-7").stdout)

    def test_two_stores_are_never_the_same_drive(self):
        made = [self.format(self.root / str(i), *SMALL) for i in range(3)]
        for key in ("drive_uuid", "incarnation", "serial"):
            self.assertEqual(len({each[key] for each in made}), 3, key)

    def test_what_is_there_is_overwritten_only_by_force_and_only_as_a_whole(self):
        path = self.root / "s"
        first = self.format(path, *SMALL)
        self.assertIn("--force", self.format(path, *SMALL, code=1)["message"])
        self.assertEqual(self.ask("ssd", "info", path)["incarnation"], first["incarnation"])
        self.assertIn("longer than 20", self.format(path, *SMALL, "--force", "--serial", "x" * 21, code=2)["message"])
        self.format(path, "--capacity", "1PiB", "--force", code=2)
        self.assertEqual(self.ask("ssd", "info", path)["incarnation"], first["incarnation"], "a refused format must not change the store")
        second = self.format(path, *SMALL, "--force")
        self.assertEqual(second["replaced"], ["a GNStor store"])
        self.assertNotEqual(second["incarnation"], first["incarnation"])
        letter = self.write("letter", b"dear operator")
        self.assertIn("13 bytes", self.format(letter, *SMALL, code=1)["message"])
        self.assertEqual(letter.read_bytes(), b"dear operator")
        self.assertEqual({p.name for p in self.root.iterdir()} - {"array", "store"}, {"s", "letter"}, "a refused command left files")

    def test_a_killed_format_stands_in_nobodys_way(self):
        path = self.root / "s"
        self.format(path, *SMALL)
        for left in ("s.new-abcdef", "s.formatting"):
            self.write(left, b"half a store")
        self.format(path, *SMALL, "--force")
        self.assertEqual(self.ask("ssd", "info", path)["state"], "clean")

    def test_info_reads_what_may_only_be_read(self):
        path = self.root / "s"
        self.format(path, *SMALL)
        path.chmod(0o444)
        self.root.chmod(0o755)
        before = path.read_bytes()
        other = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
        for command in ("info", "check", "recover"):
            try:
                self.cli("ssd", command, path, **other)
            except PermissionError:  # a checkout that nobody else may enter
                print(f"{self.id()}: runs as root")
                self.cli("ssd", command, path)
        self.assertEqual(path.read_bytes(), before)

    def test_a_store_in_use_is_neither_formatted_nor_looked_at(self):
        self.ask("up", "--ssds", "1", "--capacity", "64MiB")
        store = self.dir / "ssd-0.store"
        for words in (("format", store, *SMALL, "--force"), ("info", store)):
            self.assertIn("use", self.ask("ssd", *words, code=1)["message"])
        self.ask("down")
        self.assertEqual(self.ask("ssd", "info", store)["state"], "clean")

    def filled(self):
        """A store with an object's blocks, and one of them."""
        data = self.random.randbytes(600_000)
        self.objects("put", self.write("data", data), "--ssds", "2", "--capacity", "64MiB")
        return self.store / "ssd-0.store", data

    def test_check_passes_a_good_store_and_names_a_flipped_byte(self):
        store, data = self.filled()
        before = store.read_bytes()
        good = self.ask("ssd", "check", store)
        self.assertEqual((good["damages"], good["mounted"]), (0, True))
        self.assertGreaterEqual(good["blocks"], len(data) // 4096)
        self.assertEqual(store.read_bytes(), before, "reading information must not change the store")
        self.assertIn(b"no damage", self.cli("ssd", "check", store).stdout)
        at = before.find(data[8192:12288])
        with open(store, "r+b") as f:
            f.seek(at + 1234)
            f.write(bytes([before[at + 1234] ^ 1]))
        done = self.cli("ssd", "check", store, "--output", "json", code=1)
        bad = json.loads(done.stdout)
        self.assertEqual(bad["damages"], 1, bad["findings"])
        self.assertEqual(bad["findings"][0]["severity"], "damage")
        self.assertEqual(bad["findings"][0]["offset"], at)
        self.assertRegex(bad["findings"][0]["what"], r"sectors 2 of page \d+ .* reads of block 2 of volume \d+ fail")
        self.cli("ssd", "check", store, code=1, says="1 damage, no notes")

    def test_recover_explains_and_writes_only_when_asked(self):
        self.ask("up", "--ssds", "1", "--capacity", "64MiB")
        self.ask("volume", "create", "v", "1MiB", "--replicas", "1")
        self.kill_daemon()
        store = self.dir / "ssd-0.store"
        self.assertEqual(self.ask("ssd", "info", store)["state"], "open")
        before = store.read_bytes()
        told = self.ask("ssd", "recover", "--explain", store)
        self.assertEqual((told["written"], told["volumes"], told["blocks_lost"]), (False, 1, 0))
        self.assertEqual(store.read_bytes(), before)
        self.assertIn(b"nothing was written", self.cli("ssd", "recover", "--dry-run", store).stdout)
        self.assertEqual(self.ask("ssd", "recover", "--write", store)["written"], True)
        self.assertEqual(self.ask("ssd", "info", store)["state"], "clean")
        self.assertNotEqual(store.read_bytes(), before)
        self.cli("ssd", "recover", "--write", "--dry-run", store, code=2)
        self.ask("up")
        self.assertEqual([v["name"] for v in self.ask("volume", "list")["volumes"]], ["v"])
        for command in ("check", "recover"):
            self.assertIn("use", self.ask("ssd", command, store, code=1)["message"])

    def test_reset_term_is_obeyed_by_the_drive_and_loses_nothing(self):
        store = self.dir / "ssd-0.store"
        self.ask("up", "--ssds", "1", "--capacity", "64MiB")
        self.ask("volume", "create", "v", "1MiB", "--replicas", "1")
        self.assertIn("use", self.ask("ssd", "reset-term", store, "--term", "1", code=1)["message"])
        self.cli("down")
        self.assertEqual(self.ask("ssd", "reset-term", store, "--term", "1000000")["term_before"], 1)
        self.assertIn("reset-term --term 1", self.cli("up", code=1).stderr.decode())
        before = store.read_bytes()
        for bad in ("0", "-1", "1048575", str(1 << 32), str((1 << 64) - 1), str(1 << 64), str(1 - (1 << 64)), "1e3", "one"):
            refused = self.cli("ssd", "reset-term", store, "--term=" + bad, code=2).stderr.decode()
            # Versions of CLI11 word a range as "1 to 1048574" or as "[1 - 1048574]".
            self.assertRegex(refused, r"\b1 (to|-) 1048574\b")
            self.assertIn(f"Value {bad} ", refused)
        self.assertEqual(store.read_bytes(), before, "a refused command must not change the store")
        self.assertIn("--term", self.cli("ssd", "reset-term", store, code=2).stderr.decode())
        self.assertEqual(self.ask("ssd", "reset-term", store, "--term", "1")["term"], 1)
        self.ask("up")
        self.assertEqual([v["name"] for v in self.ask("volume", "list")["volumes"]], ["v"])
        fresh = self.root / "fresh"
        self.format(fresh, *SMALL)
        self.assertIn("no gnstord", self.ask("ssd", "reset-term", fresh, "--term", "1", code=1)["message"])

    def test_a_store_without_metadata_is_refused_with_a_sentence(self):
        store, _ = self.filled()
        with open(store, "r+b") as f:
            f.seek(8192)
            f.write(bytes(2 << 20))
        self.assertIn("metadata", self.ask("ssd", "recover", store, code=1)["message"])
        self.cli("ssd", "check", store, code=1, says="the firmware refuses the store")

    def test_wrong_usage_is_2_and_does_nothing(self):
        path = self.root / "s"
        for words in (("format", path), ("format", path, "--capacity", "many"), ("format", path, *SMALL, "--unit-pages", "7"),
                      ("format", path, *SMALL, "--over-provisioning", "101"), ("format", path, "--capacity", "5000"), ("format",),
                      ("format", path, *SMALL, "--service-units", "0"), ("info",), ("frobnicate", path), ("format", path, *SMALL, "--serial", "a\nb"), ("format", path, *SMALL, "--serial", "a b")):
            self.cli("ssd", *words, code=2)
        self.assertFalse(path.exists())
        for words in (("format", "/nonexistent/folder/s", *SMALL), ("info", self.root / "nothing"), ("info", self.root),
                      ("format", path, *SMALL, "--device-serial", "S")):
            self.cli("ssd", *words, code=None)
            self.assertFalse(path.exists())
        self.cli("ssd", "info", self.write("text", b"x" * 9000), code=1, says="no GNStor store")
        self.format(path, *SMALL)
        self.assertIn("no serial number", self.format(path, *SMALL, "--force", "--device-serial", "S", code=2)["message"])

    def test_a_blank_device_becomes_a_store_that_fills_it(self):
        device, _ = self.loop()
        if device is None:
            return
        made = self.format(device, "--unit-pages", "64")
        self.assertLessEqual(made["store_bytes"], 64 << 20)
        self.assertGreater(made["store_bytes"], (64 << 20) - (1 << 20), "the store must use nearly all of the device")
        self.assertEqual(self.ask("ssd", "info", device)["serial"], made["serial"])
        self.assertEqual(self.ask("ssd", "check", device)["damages"], 0)
        self.assertEqual(self.ask("ssd", "recover", device)["pages_mapped"], 0)
        self.assertIn("GNStor store", self.format(device, code=1)["message"])

    def test_a_device_with_a_file_system_needs_force_and_its_own_serial_number(self):
        device, backing = self.loop()
        if device is None or shutil.which("mkfs.ext4") is None:
            return
        subprocess.run(["mkfs.ext4", "-q", "-L", "holiday", device], check=True)
        refused = self.format(device, code=1)["message"]
        self.assertIn("ext4", refused)
        self.assertIn("holiday", refused)
        self.assertNotIn(str(backing), refused, "the error must not print the serial number, so that the user looks it up")
        for words, code in ((("--force",), 2), (("--force", "--device-serial", "S"), 2), (("--device-serial", backing), 1)):
            self.format(device, *words, code=code)
            count("refusals")
        subprocess.run(["fsck.ext4", "-n", device], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        made = self.format(device, "--unit-pages", "64", "--force", "--device-serial", backing)
        self.assertIn("ext4", made["replaced"][0])
        left = subprocess.run(["blkid", "-p", device], capture_output=True, text=True, check=False)
        self.assertNotIn("ext4", left.stdout)

    def test_a_mounted_device_is_never_formatted(self):
        device, backing = self.loop()
        if device is None or shutil.which("mkfs.ext4") is None:
            return
        subprocess.run(["mkfs.ext4", "-q", device], check=True)
        place = self.root / "mounted here"
        place.mkdir()
        if subprocess.run(["mount", device, str(place)], capture_output=True, check=False).returncode != 0:
            return
        self.mounts.append(place)
        (place / "file").write_text("kept")
        refused = self.format(device, "--force", "--device-serial", backing, code=1)["message"]
        self.assertIn(f"mounted at {place}", refused)
        self.assertEqual((place / "file").read_text(), "kept")
        count("refusals")

    def test_swap_and_partitions_are_found(self):
        device, backing = self.loop()
        if device is None:
            return
        if shutil.which("mkswap") is not None:
            subprocess.run(["mkswap", device], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.assertIn("swap", self.format(device, code=1)["message"])
            count("refusals")
        # A master boot record with one partition.
        with open(device, "r+b") as f:
            f.seek(0x1BE)
            f.write(bytes.fromhex("00000200830010000008000000080000"))
            f.seek(0x1FE)
            f.write(b"\x55\xaa")
        self.assertIn("partition table (dos)", self.format(device, code=1)["message"])
        count("refusals")
        self.assertEqual(len(self.format(device, "--unit-pages", "64", "--force", "--device-serial", backing)["replaced"]) >= 1, True)

    def test_a_device_that_is_too_small_is_refused_before_anything_is_destroyed(self):
        device, backing = self.loop(16)
        if device is None:
            return
        with open(device, "r+b") as f:
            f.seek(4086)
            f.write(b"SWAPSPACE2")
        before = backing.read_bytes()
        self.format(device, "--capacity", "1GiB", "--force", "--device-serial", backing, code=1)
        self.assertEqual(backing.read_bytes(), before)


if __name__ == "__main__":
    main("cli_ssd")
