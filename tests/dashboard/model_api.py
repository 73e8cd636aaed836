"""gnstord's dashboard over answers that a test chooses: names and texts that gnstord would never give, counters that go back, a rebuild."""
import http.server
import json
import threading


class ModelApi:
    """Serves `files` (path: headers and body, as gnstord serves them) and `answers` (path: JSON, or status and JSON), which a test may
    change at any time."""

    def __init__(self, files, answers):
        self.files, self.answers, self.asked = files, answers, []
        model = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                path = self.path.split("?")[0]
                if path in model.files:
                    headers, body = model.files[path]
                    return self.answer(200, headers, body)
                model.asked.append((self.path, dict(self.headers)))
                status, found = 404, {"error": {"code": "not_found", "message": "nothing"}}
                if path in model.answers:
                    found = model.answers[path]
                    status, found = found if isinstance(found, tuple) else (200, found)
                return self.answer(status, {"Content-Type": "application/json"}, json.dumps(found).encode())

            def answer(self, status, headers, body):
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/dashboard"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def ssd(slot, **changes):
    counters = {name: 0 for name in ("reads", "writes", "blocks_read", "blocks_written")}
    one = {"slot": slot, "state": "in", "serves": True, "uuid": f"uuid-{slot}", "serial": f"GN{slot:04}", "nic_address": f"10.0.0.{1 + slot // 2}",
           "service": "4420", "subsystem_nqn": "nqn", "capacity_bytes": 1 << 30, "used_bytes": (slot + 1) << 26, "domain": slot // 2,
           "firmware": "0.1.0", "trouble": "", "counters": counters, "available_spare_percent": 100}
    return {**one, **changes}


def volume(number, name, **changes):
    one = {"id": number, "name": name, "capacity_bytes": 1 << 30, "chunk_bytes": 65536, "replicas": 2, "byte_length": 1 << 20, "epoch": 1,
           "birth_epoch": 1, "owner": 1, "owner_name": "trainer", "writer": 0, "readers": [], "world_readable": False, "any_writer": False,
           "hash_factor": "0x1", "revision": 1, "slot_count": 4}
    return {**one, **changes}


def healthy(slots=4):
    """Answers of an array with nothing wrong."""
    status = {"version": "0.1.0", "term": 1, "map_version": 1, "map_in_force": True, "capacity_bytes": slots << 30, "provisioned_bytes": 1 << 31,
              "volumes": 1, "clients": 1, "ssds": slots, "pending_changes": 0, "health": "ok", "leases": [], "warnings": [], "read_only": "",
              "superseded": ""}
    room = [{"replicas": n, "bytes": (slots << 30) // n} for n in range(1, min(4, slots) + 1)]
    return {"/v1/status": status, "/v1/ssds": {"ssds": [ssd(slot) for slot in range(slots)]}, "/v1/health": {"status": "ok", "findings": []},
            "/v1/volumes": {"volumes": [volume(1, "data")]}, "/v1/clients": {"clients": [{"id": 1, "name": "trainer", "host_nqn": "nqn"}]},
            "/v1/events": {"events": [event(1)], "first": 1, "last": 1, "started": "2026-11-28T10:00:00.000Z"},
            "/v1/capacity": {"ssds": [], "capacity_bytes": slots << 30, "used_bytes": 1 << 28, "provisioned_bytes": 1 << 31, "usable": room,
                             "room": room, "volumes": []}}


def event(number, text="gnstord started", code="DAEMON_STARTED"):
    return {"number": number, "time": "2026-11-28T10:00:00.000Z", "code": code, "text": text}
