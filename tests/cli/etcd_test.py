#!/usr/bin/env python3
"""Records in etcd, and several gnstords of which one leads: kills, pauses and losses of etcd, over nodes that are processes. Needs etcd (Debian:
etcd-server); where it is missing, the tests say so. Arguments: the gnstor and gnstord programs."""
import http.client
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import time
import urllib.parse

from programs import DEADLINE_S, GNSTOR, GNSTORD, Programs, count, main

TAKEOVER_S = 10  # T_grant: running I/O does not notice
SMALL = ("--ssds", "1", "--capacity", "64MiB")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Etcd(Programs):
    def setUp(self):
        super().setUp()
        self.children = []
        self.etcd = None
        for name in ("GNSTOR_ARRAY", "GNSTOR_TOKEN_FILE"):
            self.env.pop(name, None)
        if shutil.which("etcd") is None:
            # A line of its own: ./run test shows those that begin so.
            print(f"\nskipped: {self.id()}: etcd is not installed (Debian: etcd-server)", flush=True)
            self.skipTest("etcd is not installed (Debian: etcd-server)")

    def tearDown(self):
        for process in reversed(self.children):
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
                process.wait(DEADLINE_S)
        super().tearDown()

    def start(self, name, words, **more):
        """Appends to the log of that name; returns the process."""
        with open(self.root / f"{name}.log", "ab") as log:
            process = subprocess.Popen([str(word) for word in words], env=self.env, stdout=log, stderr=subprocess.STDOUT, **more)
        self.children.append(process)
        return process

    def log(self, name):
        path = self.root / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def said(self, name, words, times=1):
        self.until(lambda: self.log(name).count(words) >= times, f"{name} does not say '{words}':\n{self.log(name)[-3000:]}")

    def start_etcd(self, scheme="http", words=()):
        if self.etcd is None:
            self.etcd_ports = free_port(), free_port()
        self.url = f"{scheme}://127.0.0.1:{self.etcd_ports[0]}"
        peer = f"http://127.0.0.1:{self.etcd_ports[1]}"
        self.etcd = self.start("etcd", ["etcd", "--data-dir", self.root / "etcd", "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
                                        "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}", *words],
                               cwd=self.root)
        self.until(lambda: self.connects(self.etcd_ports[0]), "etcd does not listen")

    def connects(self, port):
        with socket.socket() as s:
            s.settimeout(5)
            return s.connect_ex(("127.0.0.1", port)) == 0

    def start_nodes(self):
        self.addresses = [f"127.48.{os.getpid() % 250}.{i}" for i in (1, 2)]
        for i, address in enumerate(self.addresses):
            self.start(f"node{i}", [GNSTOR, "node", "--dir", self.root / f"n{i}", "--listen", address, *SMALL])
            self.said(f"node{i}", "serving 1 SSDs at")

    def start_daemon(self, name, *words):
        folder = self.root / name
        keys = [word for i, address in enumerate(self.addresses) for word in ("--node-key", f"{address}={self.root / f'n{i}' / 'node.key'}")]
        before = self.log(name).count("gnstord: serving")
        etcd = ("--etcd", self.url, "--etcd-prefix", "/gnstor/test") if self.url else ()
        process = self.start(name, [GNSTORD, "--dir", folder, "--nodes", ",".join(self.addresses), *keys, *etcd, *words])
        self.said(name, "gnstord: serving", before + 1)
        return process

    def start_alone(self, name):
        """With its records in SQLite."""
        self.assertIsNone(self.url)
        return self.start_daemon(name)

    def array(self, *names):
        return ",".join(f"unix:{self.root / name / 'gnstord.sock'}" for name in names)

    def ask_socket(self, name, target="/v1/status", body=None):
        """Status and JSON of a request to one daemon; with a body a POST."""
        class Unix(http.client.HTTPConnection):
            def connect(connection):
                connection.sock = socket.socket(socket.AF_UNIX)
                connection.sock.settimeout(DEADLINE_S)
                connection.sock.connect(str(self.root / name / "gnstord.sock"))
        connection = Unix("gnstord")
        try:
            connection.request("GET" if body is None else "POST", target, None if body is None else json.dumps(body),
                               {} if body is None else {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def leads(self, name):
        try:
            return self.ask_socket(name)[0] == 200
        except OSError:
            return False

    def until_leads(self, name):
        began = time.monotonic()
        self.until(lambda: self.leads(name), f"{name} does not lead:\n{self.log(name)[-3000:]}")
        return time.monotonic() - began

    def pair(self):
        """A leader `a` and a standby `b`, over two nodes."""
        self.start_etcd()
        self.start_nodes()
        a = self.start_daemon("a")
        self.until_leads("a")
        b = self.start_daemon("b")
        self.said("b", "as the leader or a standby")
        return a, b

    def put(self, daemons, name, size):
        data = self.random.randbytes(size)
        self.cli("put", self.write(name, data), name, "--array", self.array(*daemons))
        self.objects[name] = data

    def verify(self, daemons):
        for name, data in self.objects.items():
            self.assertTrue(self.cli("cat", name, "--array", self.array(*daemons)).stdout == data, (name, "has other bytes"))
            count("objects_read_after_a_takeover")

    def test_a_standby_takes_over_from_a_leader_that_is_killed_or_stopped(self):
        self.objects = {}
        a, b = self.pair()
        leader = f"the gnstord at {self.array('a')} leads the array"
        self.until(lambda: leader in self.ask_socket("b")[1]["error"]["message"], "the standby does not say who leads")
        status, answer = self.ask_socket("b")
        self.assertEqual((status, answer["error"]["code"]), (503, "standby"))
        both = ("b", "a")  # the standby first: a command goes on to the leader
        self.put(both, "before", 700_001)
        term = self.ask("status", "--array", self.array(*both))["term"]
        writer, other = (self.ask_socket("a", "/v1/clients", {"name": name})[1]["id"] for name in ("writer", "other"))
        self.ask_socket("a", "/v1/volumes", {"client": writer, "name": "held", "capacity_bytes": 1 << 20, "any_writer": True})
        status, opened = self.ask_socket("a", "/v1/volumes/held/open", {"client": writer, "mode": "write"})
        self.assertEqual(status, 200, opened)
        self.kill(a.pid)
        a.wait(DEADLINE_S)
        count("kills")
        took = self.until_leads("b")
        print(f"\nafter kill -9 of the leader the standby led in {took:.1f} s", flush=True)
        self.assertLess(took, TAKEOVER_S)
        self.assertGreater(self.ask("status", "--array", self.array(*both))["term"], term)
        # The lease of a volume goes on, and keeps others out.
        held = {"client": writer, "epoch": opened["volume"]["epoch"], "volume": opened["volume"]["id"]}
        self.assertEqual(self.ask_socket("b", "/v1/volumes/held/open", {"client": other, "mode": "write"})[0], 409)
        self.assertEqual(self.ask_socket("b", "/v1/volumes/held/renew", held)[0], 200)
        self.assertEqual(self.ask_socket("b", "/v1/volumes/held/release", held)[0], 200)
        self.verify(both)
        self.put(both, "after", 500_001)
        self.start_daemon("a")
        self.assertFalse(self.leads("a"))
        b.send_signal(signal.SIGTERM)
        self.assertEqual(b.wait(DEADLINE_S), 0)
        took = self.until_leads("a")
        print(f"\nafter the leader's end the standby led in {took:.1f} s", flush=True)
        self.assertLess(took, TAKEOVER_S / 2)
        count("takeovers", 2)
        self.verify(both)

    def test_a_leader_that_hangs_and_runs_on_does_not_act_any_more(self):
        self.objects = {}
        a, b = self.pair()
        both = ("a", "b")
        self.put(both, "before", 300_001)
        os.kill(a.pid, signal.SIGSTOP)
        count("stops")
        began = time.monotonic()
        self.until(lambda: self.leads("b"), "the standby does not lead while the leader hangs")
        took = time.monotonic() - began
        print(f"\nafter SIGSTOP of the leader the standby led in {took:.1f} s", flush=True)
        self.assertLess(took, TAKEOVER_S)
        self.cli("volume", "create", "of-b", "1MiB", "--array", self.array("b"))
        # What it was about to do when it was stopped, and what it is asked now, is refused.
        os.kill(a.pid, signal.SIGCONT)
        refused = self.cli("volume", "create", "of-a", "1MiB", "--array", self.array("a"), code=None)
        self.assertEqual(refused.returncode, 1, refused)
        self.said("a", "it stands by")
        self.until(lambda: self.ask_socket("a")[0] == 503, "the leader that hung does not stand by")
        names = {volume["name"] for volume in self.ask("volume", "list", "--array", self.array(*both))["volumes"]}
        self.assertIn("of-b", names)
        self.assertNotIn("of-a", names)
        self.verify(both)
        # And it takes over in its turn.
        self.kill(b.pid)
        b.wait(DEADLINE_S)
        count("kills")
        self.until_leads("a")
        count("takeovers", 2)
        self.verify(("a",))

    def test_without_etcd_reading_goes_on_and_changes_wait_for_it(self):
        self.objects = {}
        a, _ = self.pair()
        self.put(("a",), "before", 300_001)
        term = self.ask_socket("a")[1]["term"]
        self.kill(self.etcd.pid)
        self.etcd.wait(DEADLINE_S)
        count("losses_of_etcd")
        self.until(lambda: "read_only" in json.dumps(self.ask_socket("a")[1]) and self.ask_socket("a")[1].get("read_only"), "the loss is not shown")
        # Beyond T_grant: the SSDs are granted on, as each of them says that no other gnstord has led since.
        began = time.monotonic()
        while time.monotonic() - began < 1.5 * TAKEOVER_S:
            self.verify(("a",))
        refused = self.cli("volume", "create", "v", "1MiB", "--array", self.array("a"), code=1)
        self.assertIn("etcd", refused.stderr.decode())
        self.assertIn("it is not known which gnstord leads the array", self.ask_socket("b")[1]["error"]["message"])
        self.start_etcd()
        self.until(lambda: self.cli("volume", "create", "v", "1MiB", "--array", self.array("a", "b"), code=None).returncode == 0,
                   "changes are not stored again")
        if self.leads("a"):
            self.assertEqual(self.ask_socket("a")[1]["term"], term, "the same leadership goes on")
        self.verify(("a", "b"))

    def certificates(self):
        """A CA, the server's certificate and the client's, by openssl."""
        def openssl(*words):
            subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, cwd=self.root)
        for ca in ("ca", "other-ca"):
            openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={ca}", "-keyout",
                    f"{ca}.key", "-out", f"{ca}.crt")
        for name, ca in (("server", "ca"), ("client", "ca"), ("stranger", "other-ca")):
            # The gateway within etcd is a client of etcd by the server's certificate.
            self.write(f"{name}.ext", b"subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
            openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out",
                    f"{name}.csr")
            openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.crt", "-CAkey", f"{ca}.key", "-CAcreateserial", "-days", "2", "-extfile",
                    f"{name}.ext", "-out", f"{name}.crt")

    def tls(self, ca="ca", client="client"):
        words = ["--etcd-ca", self.root / f"{ca}.crt"]
        return words if client is None else [*words, "--etcd-cert", self.root / f"{client}.crt", "--etcd-key", self.root / f"{client}.key"]

    def test_records_are_kept_over_tls_with_client_certificates_and_strangers_are_refused(self):
        self.objects = {}
        self.certificates()
        self.start_etcd("https", ["--cert-file", "server.crt", "--key-file", "server.key", "--client-cert-auth", "--trusted-ca-file", "ca.crt"])
        self.start_nodes()
        for name, words, says in (("n", self.tls(client=None), "certificate"), ("o", self.tls(client="stranger"), "certificate"),
                                  ("p", self.tls(ca="other-ca"), "--etcd-ca")):
            refused = self.start_daemon(name, *words)
            self.until(lambda n=name, s=says: s in self.ask_socket(n)[1]["error"]["message"], f"{name} is not told why etcd refuses it: {self.log(name)}")
            self.assertFalse(self.leads(name))
            refused.terminate()
            refused.wait(DEADLINE_S)
            count("refused_certificates")
        self.start_daemon("a", *self.tls())
        self.until_leads("a")
        self.put(("a",), "kept", 100_001)
        self.verify(("a",))

    def test_records_move_to_etcd_and_back_while_gnstord_is_stopped(self):
        self.objects = {}
        self.start_etcd()
        self.start_nodes()
        url, self.url = self.url, None
        sqlite, etcd = f"sqlite:{self.root / 'a' / 'records.db'}", f"etcd:{url}"
        prefix = ("--etcd-prefix", "/gnstor/test")
        a = self.start_alone("a")
        self.until_leads("a")
        self.put(("a",), "kept", 200_001)
        self.cli("records", "move", "--from", sqlite, "--to", etcd, *prefix, code=1, says="in use by another gnstord")
        self.end(a)
        self.cli("records", "copy", "--from", f"sqlite:{self.root / 'none.db'}", "--to", etcd, *prefix, code=1, says="there is no record store")
        self.cli("records", "copy", "--from", sqlite, "--to", "x", *prefix, code=2, says="is no place of records")
        self.cli("records", "copy", "--from", sqlite, "--to", etcd, *prefix, says="copied 1 volumes")
        # As after a move that was killed before it set the first place aside: the same command ends it.
        self.cli("records", "move", "--from", sqlite, "--to", etcd, *prefix, says="moved 1 volumes")
        self.assertFalse((self.root / "a" / "records.db").exists())
        self.assertTrue((self.root / "a" / "records.db.moved-1").exists())
        self.url = url
        a = self.start_daemon("a")
        self.until_leads("a")
        self.verify(("a",))
        self.put(("a",), "more", 100_001)
        self.cli("records", "copy", "--from", etcd, "--to", sqlite, *prefix, code=1, says="Stop every gnstord")
        self.end(a)
        copied = f"sqlite:{self.root / 'copied.db'}"
        self.cli("records", "copy", "--from", etcd, "--to", copied, *prefix, says="copied 2 volumes")
        self.cli("records", "copy", "--from", copied, "--to", etcd, *prefix, code=1, says="holds records already")
        self.cli("records", "move", "--from", etcd, "--to", sqlite, *prefix, says="moved 2 volumes")
        self.cli("records", "copy", "--from", etcd, "--to", f"sqlite:{self.root / 'again.db'}", *prefix, code=1, says="holds no records")
        self.url = None
        self.start_alone("a")
        self.until_leads("a")
        self.verify(("a",))
        count("moves_of_records", 2)

    def end(self, process):
        process.terminate()
        self.assertEqual(process.wait(DEADLINE_S), 0)


if __name__ == "__main__":
    main("cli_etcd")
