#!/usr/bin/env python3
"""The socket of a real gnstord against requests that nobody should send. Arguments: the gnstor and gnstord programs."""
import json
import os
import socket

from programs import DEADLINE_S, Programs, count, main

JSON = "Content-Type: application/json\r\n"


class Http(Programs):
    def setUp(self):
        super().setUp()
        self.ask("up", "--ssds", "2", "--capacity", "64MiB")
        self.ask("volume", "create", "v", "1MiB", "--as", "alice")
        self.before = self.ask("volume", "list")
        self.process = self.pid()

    def tearDown(self):
        try:
            self.assertEqual(self.pid(), self.process, "the daemon's process id changed")
            self.assertEqual(self.ask("volume", "list"), self.before, "an invalid request changed a volume")
        finally:
            super().tearDown()

    def talk(self, data, end=True):
        """Sends bytes, returns all that comes back until the daemon closes."""
        count("requests")
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(DEADLINE_S)
            s.connect(str(self.dir / "gnstord.sock"))
            try:
                s.sendall(data)
                if end:
                    s.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # refused before its end
            answer = b""
            try:
                while more := s.recv(65536):
                    answer += more
            except ConnectionError:
                pass
        return answer

    def request(self, method, target, body=b"", headers=JSON, length=None):
        head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}"
        if body or length is not None:
            head += f"Content-Length: {len(body) if length is None else length}\r\n"
        answer = self.talk(head.encode("latin-1") + b"\r\n" + body, end=False)
        self.assertTrue(answer.startswith(b"HTTP/1.1 "), (method, target[:80], body[:80], answer[:200]))
        head, _, content = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), head, content

    def refused(self, *words, status=None, **more):
        code, head, content = self.request(*words, **more)
        self.assertIn(code, range(400, 500), (words, content[:300]))
        if status is not None:
            self.assertEqual(code, status, (words, content[:300]))
        self.assertIn(b"application/json", head)
        problem = json.loads(content)["error"]
        self.assertTrue(problem["code"] and problem["message"], content)
        count("refusals")
        return problem

    def alive(self):
        code, _, content = self.request("GET", "/healthz")
        self.assertEqual(code, 200, content)

    def test_bodies_that_are_not_what_the_document_says_are_400(self):
        deep = b"[" * 100_000
        for body in (b"{", b"null", b"[]", b"1", b'"x"', b"{}", b"\xff\xfe", b"{\"name\": \"\xc3\x28\"}", deep, b'{"name":' * 40,
                     b'{"name":"a","more":1}', b'{"name":1}', b'{"name":null}', b'{"name":""}',
                     b'{"name":"a/b"}', b'{"name":"' + b"x" * 64 + b'"}', b'{"name":"a\\u0000b"}', b"name=a", b'{"name":"a"} {}'):
            self.refused("POST", "/v1/clients", body=body)
        good = {"client": 1, "name": "w", "capacity_bytes": 4096}
        for field, values in {"client": (-1, 0, 65536, 1.5, "1", None, 1e300), "capacity_bytes": (-1, 0, 1 << 65, "1M", [], True, 0.5),
                              "chunk_bytes": (0, 1, 4097, 1 << 40, -4096), "replicas": (0, 5, 255, -1, 2.5, "2"),
                              "any_writer": (1, "yes", {}), "name": ("", ".", "a b", "é", 7)}.items():
            for value in values:
                self.refused("POST", "/v1/volumes", body=json.dumps({**good, field: value}).encode())
        self.refused("POST", "/v1/volumes", body=b'{"client":1,"name":"w","capacity_bytes":1e999}')
        self.refused("POST", "/v1/volumes/v/open", body=b'{"client":1,"mode":"destroy"}')
        self.refused("POST", "/v1/volumes/nothing/open", body=b'{"client":1,"mode":"read"}', status=404)
        self.refused("POST", "/v1/clients", body=b'{"name":"a"}', headers="Content-Type: text/html\r\n")
        self.alive()

    def test_paths_and_query_strings_that_mean_nothing_are_4xx(self):
        for target in ("/dashboard/nothing", "/v2/volumes", "/v1", "/v1/volumes/", "/v1/volumes/v/explode", "//v1//volumes", "/v1/volumes/%zz",
                       "/v1/volumes/%00", "/v1/volumes/%", "/v1/volumes/..%2f..%2fetc%2fpasswd", "/v1/volumes/../../etc/passwd",
                       "/v1/volumes?bogus=1", "/v1/volumes?%ff=%fe", "/v1/volumes?&&==&", "/v1/status?x=" + "y" * 3000,
                       "/v1/volumes/" + "a" * 4000):
            self.refused("GET", target)
        for query in ("", "?client=", "?client=x", "?client=-1", "?client=0", "?client=65536", "?client=1&client=2", "?client=1&other=2",
                      "?client=99999999999999999999999", "?client=0x1", "?client=+1", "?client=1%00", "?client=%31%zz", "?Client=1"):
            self.refused("DELETE", "/v1/volumes/v" + query)
        for method in ("PUT", "PATCH"):
            self.refused(method, "/v1/volumes", body=b"{}", status=405)
        self.refused("OPTIONS", "/v1/volumes", status=405)
        self.refused("OPTIONS", "/v1/volumes", body=b"{}", status=400)  # refused before its path is looked at
        self.refused("POST", "/v1/status", body=b"{}", status=405)
        self.refused("DELETE", "/v1/volumes", status=405)
        self.alive()

    def test_requests_that_are_too_large_are_refused(self):
        for size, name in ((65_537, "a"), (1 << 20, "b")):
            self.refused("POST", "/v1/clients", body=b'{"name":"' + name.encode() * size + b'"}', status=413)
        for size in (4 << 20, 64 << 20):
            answer = self.talk(b"POST /v1/clients HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size + bytes(4 << 20))
            self.assertTrue(not answer or answer.split()[1].startswith(b"4"), answer[:200])
        answer = self.talk(b"GET /" + b"x" * 1_000_000 + b" HTTP/1.1\r\n\r\n")
        self.assertTrue(not answer or answer.split()[1].startswith(b"4"), answer[:200])
        answer = self.talk(b"GET /healthz HTTP/1.1\r\n" + b"X: " + b"y" * 1_000_000 + b"\r\n\r\n")
        self.assertTrue(not answer or answer.split()[1].startswith(b"4"), answer[:200])
        answer = self.talk(b"GET /healthz HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(20_000)) + b"\r\n")
        self.assertTrue(not answer or answer.split()[1][:1] in b"24", answer[:200])
        self.alive()

    def test_bytes_that_are_no_http_do_not_harm(self):
        for data in (b"", b"\0", b"\r\n" * 1000, b"GET", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(500),
                     b"POST /v1/clients HTTP/1.1\r\nContent-Length: -5\r\n\r\n", b"POST /v1/clients HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n{}",
                     b"POST /v1/clients HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"POST /v1/clients HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n{}",
                     b"POST /v1/clients HTTP/1.1\r\nContent-Length: 10\r\n\r\n{}", b"GET /healthz HTTP/1.1\r\nRange: bytes=9-1\r\n\r\n",
                     b"POST /v1/clients HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\0\0",
                     b"POST /v1/clients HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 9\r\n\r\n--x\r\n\r\nab"):
            answer = self.talk(data)
            self.assertTrue(not answer or answer.startswith(b"HTTP/1.1 "), (data[:80], answer[:200]))
            if answer and b"healthz" not in data:
                self.assertEqual(answer.split()[1][:1], b"4", (data[:80], answer[:300]))
            self.alive()

    def test_random_damage_to_good_requests_is_answered_or_dropped(self):
        good = [b"GET /v1/volumes HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                b'POST /v1/volumes/v/open HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 28\r\n\r\n{"client":9,"mode":"write"}\n']
        for _ in range(150):
            data = bytearray(self.random.choice(good))
            for _ in range(self.random.randrange(1, 8)):
                kind, at = self.random.randrange(3), self.random.randrange(len(data))
                if kind == 0:
                    data[at] = self.random.randrange(256)
                elif kind == 1:
                    del data[at:at + self.random.randrange(1, 10)]
                else:
                    data[at:at] = self.random.randbytes(self.random.randrange(1, 10))
            answer = self.talk(bytes(data))
            self.assertTrue(not answer or answer.startswith(b"HTTP/1."), (bytes(data), answer[:200]))
            if answer:
                self.assertIn(answer.split()[1][:1], (b"2", b"4"), (bytes(data), answer[:300]))
        self.alive()

    def test_what_the_document_offers_is_there(self):
        for target, kind in (("/healthz", "application/json"), ("/openapi.json", "application/json"), ("/metrics", "text/plain")):
            code, head, content = self.request("GET", target)
            self.assertEqual(code, 200)
            self.assertIn(kind.encode(), head)
            self.assertTrue(content)
        paths = json.loads(self.request("GET", "/openapi.json")[2])["paths"]
        for path, methods in paths.items():
            if "get" in methods:
                self.assertEqual(self.request("GET", path.replace("{name}", "v").replace("{client}", "1"))[0], 200, path)


if __name__ == "__main__":
    main("cli_http")
