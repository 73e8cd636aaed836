#!/usr/bin/env python3
"""TLS of the TCP interfaces, from outside: TLS is the default, a client trusts only the certificate that it was told to trust, and
neither token nor key reaches a log. Arguments: the two programs."""
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import urllib.request

from programs import DEADLINE_S, GNSTOR, GNSTORD, count, main
from served import Served

NO_SUCH = "SHA256:" + "0" * 64


class Tls(Served):
    def files(self, folder=None, stem="gnstord"):
        folder = folder or self.dir
        return folder / f"{stem}.crt", folder / f"{stem}.key"

    def local(self, address):
        """The same port by an address that a client can connect to."""
        return re.sub(r"//.*:", "//127.0.0.1:", address)

    def refused(self, address, *words, says):
        answer = self.ask("status", "--array", address, *words, code=1)
        self.assertIn(says, answer["message"])
        count("refusals")
        return answer

    def no_secret_in(self, text):
        token = (self.dir / "gnstord.token").read_text().strip()
        self.assertNotIn(token, text)
        self.assertNotIn("PRIVATE KEY", text)
        key = self.files()[1]
        for line in key.read_text().splitlines() if key.exists() else ():
            self.assertNotIn(line, text)

    def test_an_address_that_other_machines_reach_speaks_tls_by_default(self):
        process, address = self.serve(listen="0.0.0.0:0")
        self.assertTrue(address.startswith("https://"), self.said)
        certificate, key = self.files()
        self.assertEqual(stat.S_IMODE(key.stat().st_mode), 0o600)
        here = self.ask("status")  # by the socket
        pin = here["tcp"]["certificate_fingerprint"]
        self.assertEqual(here["tcp"]["url"], address)
        self.assertIn(f"the certificate {pin}", self.said)
        self.cli("status", says=f"TCP: {address}, certificate {pin} until 20")
        self.no_secret_in(self.said)
        there = self.local(address)
        self.assertEqual(self.ask("status", "--array", there, "--tls-fingerprint", pin)["ssds"], 2)
        colons = "SHA256:" + ":".join(re.findall("..", pin[7:].upper()))
        self.env.update(GNSTOR_ARRAY=there, GNSTOR_TLS_FINGERPRINT=colons)
        self.assertTrue(self.ask("status")["map_in_force"])
        del self.env["GNSTOR_ARRAY"], self.env["GNSTOR_TLS_FINGERPRINT"]
        # Other programs' TLS.
        context = ssl.create_default_context(cafile=certificate)
        context.check_hostname = False  # 0.0.0.0 is in no certificate
        request = urllib.request.Request(f"{there}/v1/status", headers={"Authorization": "Bearer " + (self.dir / "gnstord.token").read_text().strip()})
        with urllib.request.urlopen(request, timeout=DEADLINE_S, context=context) as answer:
            self.assertEqual(answer.status, 200)
        old = ssl.create_default_context(cafile=certificate)
        old.check_hostname = False
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with urllib.request.urlopen(f"{there}/healthz", timeout=DEADLINE_S, context=old) as answer:
            self.assertEqual(answer.status, 200)
        self.end(process)
        self.served.remove(process)
        _, again = self.serve(listen="0.0.0.0:0")
        self.ask("status", "--array", self.local(again), "--tls-fingerprint", pin)

    def test_nobody_is_trusted_who_was_not_named(self):
        _, address = self.serve("--tls")
        pin = self.ask("status")["tcp"]["certificate_fingerprint"]
        self.assertEqual(self.ask("status", "--array", address, "--tls-ca", self.files()[0])["ssds"], 2)
        self.assertIn(pin, self.refused(address, says="--tls-ca FILE")["message"])
        self.refused(address, "--tls-fingerprint", NO_SUCH, says="another server answers")
        self.refused(address.replace("127.0.0.1", "127.0.0.2"), "--tls-ca", self.files()[0], says="does not answer")
        self.refused(address.replace("127.0.0.1", "localhost"), "--tls-ca", self.files()[0], says="not for localhost")
        self.refused(address, "--tls-ca", self.dir / "gnstord.token", says="cannot be used")
        self.refused(address, "--tls-ca", self.files()[0], "--tls-fingerprint", pin, says="leave one of them out")
        self.cli("status", "--array", address, "--tls-fingerprint", "SHA256:12", code=2, says="gnstor status")
        # In place of TLS, plain HTTP, and the other way round.
        plain = address.replace("https://", "http://")
        self.refused(plain, says="write https://")
        self.refused(plain, "--tls-fingerprint", pin, says="is plain HTTP")
        self.ask("status", "--array", f"unix:{self.dir}/gnstord.sock", "--tls-fingerprint", pin)

    def test_a_loopback_address_is_plain_unless_told_otherwise(self):
        _, address = self.serve()
        self.assertTrue(address.startswith("http://"), address)
        self.assertFalse(self.files()[0].exists(), "a certificate was made that nothing uses")
        self.assertEqual(self.ask("status", "--array", address)["tcp"], {"url": address})
        self.refused(address.replace("http://", "https://"), "--tls-fingerprint", NO_SUCH, says="does not speak TLS")

    def test_no_tls_is_said_and_warned_of(self):
        _, address = self.serve("--no-tls", listen="0.0.0.0:0")
        self.assertIn("WARNING: no TLS on 0.0.0.0", self.said)
        self.assertEqual(self.ask("status", "--array", self.local(address))["ssds"], 2)
        self.cli("status", says="without TLS")

    def test_a_certificate_of_ones_own_is_used_and_a_renewed_one_at_the_next_start(self):
        process, _ = self.serve("--tls")
        first = self.ask("status")["tcp"]["certificate_fingerprint"]
        self.end(process)
        self.served.remove(process)
        own = self.root / "own"
        own.mkdir()
        for file in self.files():
            shutil.move(file, own / file.name)
        words = ("--tls-cert", own / "gnstord.crt", "--tls-key", own / "gnstord.key")
        process, address = self.serve(*map(str, words))
        self.assertFalse(self.files()[0].exists())
        self.assertEqual(self.ask("status", "--array", address, "--tls-fingerprint", first)["ssds"], 2)
        self.end(process)
        self.served.remove(process)
        _, address = self.serve("--tls")  # makes another pair
        renewed = self.ask("status")["tcp"]["certificate_fingerprint"]
        self.assertNotEqual(renewed, first)
        self.assertIn(renewed, self.refused(address, "--tls-fingerprint", first, says=first)["message"])
        self.ask("status", "--array", address, "--tls-fingerprint", renewed)

    def test_a_key_that_others_may_read_and_a_pair_that_does_not_match_are_refused(self):
        process, _ = self.serve("--tls")
        self.end(process)
        self.served.remove(process)
        certificate, key = self.files()

        def fails(*words, says):
            done = subprocess.run([GNSTORD, "--dir", str(self.dir), "--listen", "127.0.0.1:0", *map(str, words)], env=self.env,
                                  capture_output=True, timeout=DEADLINE_S, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(says, done.stderr)
            self.no_secret_in(done.stderr.decode())
            count("refusals")

        key.chmod(0o640)
        fails("--tls", says=b"chmod 600")
        key.chmod(0o600)
        other = self.root / "other.key"
        shutil.copy(key, other)
        certificate.rename(self.root / "kept.crt")
        key.unlink()
        process, _ = self.serve("--tls")
        self.end(process)
        self.served.remove(process)
        fails("--tls-cert", certificate, "--tls-key", other, says=b"does not belong")
        key.unlink()
        fails("--tls", says=b"has no key")
        key.write_text("nothing\n")
        key.chmod(0o600)
        fails("--tls", says=b"no private key")

    def test_wrong_usage_is_refused(self):
        listen = ("--listen", "127.0.0.1:0")
        for words in (("--tls",), ("--no-tls",), (*listen, "--tls", "--no-tls"), (*listen, "--tls-cert", "x"), (*listen, "--tls-key", "x"),
                      (*listen, "--no-tls", "--tls-cert", "x", "--tls-key", "y")):
            done = subprocess.run([GNSTORD, "--dir", str(self.dir), *words], capture_output=True, timeout=DEADLINE_S, check=False)
            self.assertEqual(done.returncode, 2, (words, done.stderr))
            self.cli("up", *words, code=2)
        self.assertFalse(self.dir.exists())

    def test_peers_that_stop_in_the_handshake_or_send_garbage_do_not_stop_clients(self):
        _, address = self.serve("--tls")
        pin = self.ask("status")["tcp"]["certificate_fingerprint"]
        port = int(address.rsplit(":", 1)[1])
        peers = []
        for number in range(400):
            peers.append(socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S))
            start = (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01", self.random.randbytes(200))[number % 4]
            try:
                peers[-1].sendall(start)
            except OSError:
                pass  # closed already, to make room
            if number % 100 == 99:
                self.assertEqual(self.ask("status", "--array", address, "--tls-fingerprint", pin)["ssds"], 2)
            count("peers")
        for peer in peers:
            peer.close()

    def test_up_shows_the_fingerprint_and_programs_and_gateways_use_it(self):
        words = ("--nodes", "1", "--ssds", "2", "--capacity", "64MiB", "--listen", "127.0.0.1:0", "--tls")
        up = self.ask("up", *words)
        pin, address = up["tcp"]["certificate_fingerprint"], up["tcp"]["url"]
        self.assertIn("--tls", self.ask("up", *words)["notes"][-1])
        self.cli("up", says=f"TCP: {address}, certificate {pin}")
        self.env.update(GNSTOR_ARRAY=address, GNSTOR_TLS_FINGERPRINT=pin)
        data = self.random.randbytes(300_000)
        self.cli("put", self.write("data", data), "data")
        self.assertEqual(self.cli("cat", "data").stdout, data)
        self.env["GNSTOR_TLS_FINGERPRINT"] = NO_SUCH
        self.cli("cat", "data", code=1, says="another server answers")
        self.env["GNSTOR_TLS_FINGERPRINT"] = pin
        self.ask("volume", "create", "disk", "16MiB", "--as", "linux")
        gateway = subprocess.Popen([GNSTOR, "node", "--gateway", "disk", "--as", "linux", "--listen", f"127.50.{os.getpid() % 250}.1",
                                    "--http", "127.0.0.1:0", "--http-tls"], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            said = b""
            while b"metrics at " not in said or not said.endswith(b"\n"):
                piece = os.read(gateway.stdout.fileno(), 4096)
                self.assertTrue(piece, said)
                said += piece
            folder = self.dir / "gateway-disk"
            shown = re.search(rb"metrics at (https://[^ ]+)/metrics, with the token in ([^ ]+) and the certificate (SHA256:\w+)", said)
            self.assertTrue(shown, said)
            context = ssl.create_default_context(cafile=self.files(folder, "gateway")[0])
            token = pathlib.Path(shown[2].decode()).read_text().strip()
            self.assertNotIn(token.encode(), said)
            request = urllib.request.Request(f"{shown[1].decode()}/metrics", headers={"Authorization": f"Bearer {token}"})
            with urllib.request.urlopen(request, timeout=DEADLINE_S, context=context) as answer:
                self.assertIn(b"gnstor_gateway_writable", answer.read())
        finally:
            gateway.send_signal(signal.SIGTERM)
            gateway.wait(DEADLINE_S)
            gateway.stdout.close()
        self.no_secret_in((self.dir / "gnstord.log").read_text())


if __name__ == "__main__":
    main("cli_tls")
