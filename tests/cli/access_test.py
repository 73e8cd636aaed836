#!/usr/bin/env python3
"""gnstord over TCP: who brings the token is served, nobody else; the socket beside it by its mode. Arguments: the two programs."""
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import unittest

from programs import DEADLINE_S, GNSTOR, GNSTORD, main
from served import Served

NOBODY = 65534


class Access(Served):
    def test_the_token_file_opens_tcp_and_nothing_else_does(self):
        process, address = self.serve("--socket-mode", "0660")
        token = self.dir / "gnstord.token"
        self.assertEqual(stat.S_IMODE(token.stat().st_mode), 0o600)
        self.assertEqual(stat.S_IMODE((self.dir / "gnstord.sock").stat().st_mode), 0o660)
        self.assertEqual(self.ask("status", "--array", address)["ssds"], 2)
        made = self.ask("volume", "create", "v", "1MiB", "--array", address, "--as", "alice")
        self.assertEqual(self.ask("volume", "show", "v", "--array", f"unix:{self.dir}/gnstord.sock"), made)
        self.env["GNSTOR_ARRAY"] = address
        elsewhere = self.root / "elsewhere"
        self.cli("status", "--dir", elsewhere, code=1, says="--token-file")
        other = self.root / "other.token"
        other.write_text("0123456789abcdef0123456789abcdef\n")
        self.cli("status", "--token-file", other, code=1, says="chmod 600")
        other.chmod(0o600)
        self.assertEqual(self.ask("status", "--token-file", other, code=1)["code"], "permission")
        self.cli("volume", "delete", "v", "--as", "alice", "--token-file", other, code=1, says="the token is wrong")
        other.write_text(token.read_text())
        self.assertEqual([v["name"] for v in self.ask("volume", "list", "--token-file", other)["volumes"]], ["v"])
        self.assertTrue(self.ask("status", "--dir", elsewhere, "--token-file", other)["map_in_force"])
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(DEADLINE_S), 0)
        self.cli("status", code=1, says="nothing listens on port")
        _, again = self.serve()
        self.assertEqual(self.ask("status", "--array", again, "--token-file", other)["volumes"], 1, "the token file was replaced by the new token")

    def test_the_line_for_another_host_names_the_certificate_of_gnstord(self):
        _, address = self.serve("--tls")
        self.assertTrue(address.startswith("https://"), address)
        added = self.ask("client", "add", "alice")
        self.assertIn(added["certificate_fingerprint"], added["for_another_host"])
        _, there = self.another_host(added["for_another_host"])
        there("volume", "create", "v", "1MiB", says="was created")
        other = "SHA256:" + "0" * 64
        there("volume", "list", line=added["for_another_host"].replace(added["certificate_fingerprint"], other), code=1)

    def test_a_clients_token_opens_the_array_to_another_host_as_this_client_alone(self):
        process, address = self.serve()
        self.ask("volume", "create", "his", "1MiB", "--as", "bob")
        added = self.ask("client", "add", "alice")
        self.assertEqual(added["address"], address)
        self.cli("client", "add", "alice", says=added["for_another_host"])
        elsewhere, there = self.another_host(added["for_another_host"])
        there("volume", "create", "v", "1MiB", says="was created")
        self.assertEqual(stat.S_IMODE((elsewhere / "gnstor.token").stat().st_mode), 0o600)
        seen = json.loads(there("volume", "list", "--output", "json"))["volumes"]
        self.assertEqual([(v["name"], v["owner_name"]) for v in seen], [("v", "alice")])
        there("volume", "share", "v", "--with", "bob", says="can now be read by 'bob'")
        there("volume", "share", "v", "--with", "nobody", code=1, says="does not let its holder act as 'nobody'")
        there("volume", "delete", "his", code=1)
        there("volume", "delete", "v", "--as", "bob", code=1, says="--as")
        for words in (("add", "carol"), ("rotate", "alice"), ("remove", "bob")):
            there("client", *words, code=1, says="administrator")
        self.assertTrue(json.loads(there("status", "--output", "json"))["map_in_force"])
        rotated = self.ask("client", "rotate", "alice")
        there("volume", "list", code=1, says="its token was replaced")
        there("volume", "list", line=rotated["for_another_host"], says="alice")
        self.assertEqual(self.ask("client", "remove", "alice"), {"name": "alice", "removed": True})
        there("volume", "list", line=rotated["for_another_host"], code=1, says="removed")
        self.cli("client", "list", says="removed")
        self.cli("volume", "create", "w", "1MiB", "--as", "alice", code=1, says="gnstor client add alice")
        self.cli("client", "remove", "nobody", code=1, says="no client 'nobody'")
        again = self.ask("client", "add", "alice")
        self.assertEqual(again["id"], added["id"])
        there("volume", "delete", "v", line=again["for_another_host"])
        process.terminate()
        process.wait(DEADLINE_S)
        self.assertNotIn(b"gnc1.", process.stderr.read(), "a token in the log")

    @unittest.skipIf(os.geteuid() != 0, "acts as another user")
    def test_a_loopback_port_that_another_user_took_gets_no_token(self):
        process, address = self.serve()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(DEADLINE_S), 0)
        port = int(address.rsplit(":", 1)[1])
        os.seteuid(NOBODY)  # the kernel records it as the owner of the socket
        try:
            thief = socket.create_server(("127.0.0.1", port))
        finally:
            os.seteuid(0)
        with thief:
            self.cli("volume", "list", "--array", address, code=1, says="would get your token")
            thief.setblocking(False)
            self.assertRaises(BlockingIOError, thief.accept)

    @unittest.skipIf(os.geteuid() != 0, "acts as another user")
    def test_another_user_is_not_told_that_a_running_gnstord_was_killed(self):
        self.ask("up", "--ssds", "1", "--capacity", "64MiB")
        self.root.chmod(0o755)
        program = shutil.copy(GNSTOR, self.root)  # the other user may not reach the checkout
        done = subprocess.run([program, "down", "--dir", self.dir], env=self.env, user=NOBODY, group=NOBODY, extra_groups=[],
                              capture_output=True, timeout=DEADLINE_S, check=False)
        self.check(("down",), done, 1, "belongs to another user")
        self.assertTrue(self.ask("status")["map_in_force"])

    def test_addresses_that_mean_nothing_are_wrong_usage(self):
        for bad in ("127.0.0.1:80", "http://", "http://x", "https://h:0", "unix:"):
            self.cli("status", "--array", bad, code=2)
        for words in (("--listen", "nowhere"), ("--listen", "127.0.0.1"), ("--socket-mode", "0666")):
            done = subprocess.run([GNSTORD, "--dir", str(self.dir), *words], capture_output=True, timeout=DEADLINE_S, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
        self.dir.mkdir()
        (self.dir / "gnstord.token").write_text("x")
        done = subprocess.run([GNSTORD, "--dir", str(self.dir), "--ssds", "1", "--capacity", "64MiB", "--listen", "127.0.0.1:0"],
                              capture_output=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"gnstord.token", done.stderr)


if __name__ == "__main__":
    main("cli_access")
