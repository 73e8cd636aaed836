#!/usr/bin/env python3
"""gnstord over TCP: who brings the token is served, nobody else; the socket beside it by its mode. Arguments: the two programs."""
import os
import re
import select
import signal
import stat
import subprocess

from programs import DEADLINE_S, GNSTORD, Programs, main


class Access(Programs):
    def setUp(self):
        super().setUp()
        self.served = []

    def tearDown(self):
        # Children are reaped here: `down` would wait for the one that nobody reaps.
        for process in self.served:
            process.terminate()
            process.wait(DEADLINE_S)
            process.stderr.close()
        super().tearDown()

    def serve(self, *words):
        """gnstord in the foreground of this test; returns once it serves TCP and then its socket: process, address of the former."""
        process = subprocess.Popen([GNSTORD, "--dir", str(self.dir), "--ssds", "2", "--capacity", "64MiB", "--listen", "127.0.0.1:0",
                                    *words], stderr=subprocess.PIPE, env=self.env)
        self.served.append(process)
        said = b""
        while b".sock\n" not in said:  # the socket answers last
            self.assertTrue(select.select([process.stderr], [], [], DEADLINE_S)[0], said)
            piece = os.read(process.stderr.fileno(), 4096)
            self.assertTrue(piece, said)
            said += piece
        return process, re.search(rb"on (http://[\d.]+:\d+), with", said)[1].decode()

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
        self.cli("status", code=1, says="does not answer")
        _, again = self.serve()
        self.assertEqual(self.ask("status", "--array", again, "--token-file", other)["volumes"], 1, "the token file was replaced by the new token")

    def test_addresses_that_mean_nothing_are_wrong_usage(self):
        for bad in ("127.0.0.1:80", "http://", "http://x", "https://h:1", "unix:"):
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
