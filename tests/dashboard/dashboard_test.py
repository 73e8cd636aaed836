#!/usr/bin/env python3
"""The dashboard that gnstord serves: who gets what, and, in headless Chromium, what a reader sees. Arguments: the gnstor and gnstord programs,
and the folder for screenshots."""
import http.client
import json
import os
import pathlib
import re
import socket
import sys
import unittest
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests" / "cli"))
from browser import DEADLINE_S, Browser, chromium, pixels, variance  # noqa: E402
from model_api import ModelApi, event, healthy, ssd, volume  # noqa: E402
from programs import count, main  # noqa: E402
from served import Served  # noqa: E402

SHOTS = pathlib.Path(sys.argv.pop(1))
SOURCES = ROOT / "src" / "daemon" / "http" / "dashboard"
HOSTILE = '<img src=x onerror="alert(1)">'
ROWS = "document.querySelectorAll('#ssds tbody tr:not(.more)').length"
ENTER, TAB = ("Enter", 13), ("Tab", 9)


class OverUnix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("gnstord", timeout=DEADLINE_S)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Dashboard(Served):
    def token(self):
        return (self.dir / "gnstord.token").read_text().strip()

    def over_unix(self, method, target, body=None):
        connection = OverUnix(self.dir / "gnstord.sock")
        connection.request(method, target, body and json.dumps(body), {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read()
        connection.close()
        count("requests")
        return found

    def over_tcp(self, url, **headers):
        count("requests")
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=DEADLINE_S) as answer:
                return answer.status, dict(answer.headers), answer.read(), answer.url
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), error.read(), error.url

    def files(self):
        """Path: headers and body, as gnstord serves them on its socket."""
        found = {}
        for path in ["/dashboard"] + [f"/dashboard/{file.name}" for file in SOURCES.iterdir() if file.suffix != ".html"]:
            status, headers, body = self.over_unix("GET", path)
            self.assertEqual(status, 200, path)
            found[path] = {name: value for name, value in headers.items() if name not in ("Content-Length", "Connection", "Keep-Alive")}, body
        return found


class WithoutABrowser(Dashboard):
    """Needs no browser."""

    def test_everyone_who_can_connect_gets_the_page_and_nobody_without_the_token_any_data(self):
        _, address = self.serve()
        for path, (headers, body) in self.files().items():
            source = SOURCES / (pathlib.PurePath(path).name if path != "/dashboard" else "dashboard.html")
            self.assertEqual(body, source.read_bytes(), f"{path} is not what is in the repository")
            status, there, same, _ = self.over_tcp(address + path)
            self.assertEqual((status, same), (200, body), path)
            self.assertIn("default-src 'none'", there["Content-Security-Policy"])
            self.assertEqual(there["Content-Type"], headers["Content-Type"])
        status, _, body, url = self.over_tcp(address + "/")
        self.assertEqual((status, url), (200, address + "/dashboard"), "the root leads to the page")
        page = body.decode()
        asked = re.findall(r'"(v1/\w+)"', (SOURCES / "requests.js").read_text())
        self.assertGreaterEqual(len(asked), 7)
        for path in asked:
            self.assertEqual(self.over_tcp(f"{address}/{path}")[0], 401, path)
            self.assertEqual(self.over_tcp(f"{address}/{path}", Authorization=f"Bearer {self.token()}x")[0], 401, path)
            self.assertEqual(self.over_tcp(f"{address}/{path}", Authorization=f"Bearer {self.token()}")[0], 200, path)
            self.assertEqual(self.over_tcp(f"{address}/{path}", Authorization=f"Bearer {self.token()}", Origin="http://evil.example")[0], 403, path)
        self.assertNotIn(self.token(), page)


@unittest.skipIf(chromium() is None, "chromium is not installed")
class InABrowser(Dashboard):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser(chromium())

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()

    def setUp(self):
        super().setUp()
        self.pages, self.models = [], []

    def tearDown(self):
        for page in self.pages:
            page.close()
        for model in self.models:
            model.close()
        super().tearDown()

    def page(self, url):
        page = self.browser.page()
        self.pages.append(page)
        page.open(url)
        return page

    def model(self, answers):
        """The page over these answers, once it shows them."""
        if not self.served:
            self.serve()
        model = ModelApi(self.files(), answers)
        self.models.append(model)
        page = self.page(model.url)
        page.until(f"{ROWS} > 0")
        return model, page

    @staticmethod
    def ask_again(page):
        """As a browser does when its reader returns: the page asks at once."""
        page.value("document.dispatchEvent(new Event('visibilitychange'))")

    def sane(self, page, address):
        """What has to hold of each page: no defect, nothing from elsewhere, nothing that a text made."""
        self.assertEqual(page.events("Runtime.exceptionThrown"), [])
        self.assertEqual(page.events("Page.javascriptDialogOpening"), [])
        said = [e["entry"] for e in page.events("Log.entryAdded")]
        self.assertEqual([e for e in said if e["source"] != "network"], [], "a violation of the policy, or another complaint")
        origin = "{0.scheme}://{0.netloc}".format(urllib.parse.urlparse(address))
        for sent in page.events("Network.requestWillBeSent"):
            self.assertTrue(sent["request"]["url"].startswith((origin + "/", "data:image/svg+xml,")), sent["request"]["url"])
            self.assertEqual(sent["request"]["method"], "GET")
            count("requests_of_pages")
        self.assertEqual(page.value("document.querySelectorAll('img, iframe, object, embed, script:not([src])').length"), 0)
        self.assertEqual(page.value("[localStorage.length, document.cookie]"), [0, ""])

    def shot(self, page, name, width=1600, dark=False):
        """Leaves a screenshot of the whole page, and looks whether each section of it has something on it."""
        page.look(width, dark)
        page.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        SHOTS.mkdir(parents=True, exist_ok=True)
        (SHOTS / f"{name}.png").write_bytes(page.image())
        self.assertLessEqual(page.value("document.documentElement.scrollWidth"), width, f"{name}: the page is wider than the screen")
        boxes = page.value("""[...document.querySelectorAll(".panel, .figures, .chart, .notice, .top")].filter((e) => e.offsetHeight > 0).map((e) => {
            const box = e.getBoundingClientRect();
            return {x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height};
        })""")
        for box in boxes:
            self.assertGreater(variance(pixels(page.image(box, scale=0.25))), 3, f"{name}: nothing is drawn at {box}")
        count("screenshots")

    def enter(self, page, token):
        page.until("!document.getElementById('token-form').hidden")
        page.type("#token", token)
        page.press(*ENTER)

    def test_an_array_its_failures_and_its_return(self):
        up = self.ask("up", "--nodes", "3", "--ssds", "1", "--capacity", "64MiB", "--listen", "127.0.0.1:0")
        address = self.ask("status")["tcp"]["url"]
        data = self.random.randbytes(3_000_000)
        self.cli("put", self.write("data", data), "data")
        self.cli("volume", "create", "checkpoints", "8MiB", "--as", "trainer")
        trainer = next(c for c in json.loads(self.over_unix("GET", "/v1/clients")[2])["clients"] if c["name"] == "trainer")
        self.assertEqual(self.over_unix("POST", "/v1/volumes/checkpoints/open", {"client": trainer["id"], "mode": "write"})[0], 200)
        page = self.page(address + "/")
        self.enter(page, self.token())
        page.until(f"{ROWS} === 3")
        rows = page.value("[...document.querySelectorAll('#ssds tbody tr:not(.more)')].map((tr) => [...tr.children].map((td) => td.innerText))")
        self.assertEqual([(r[0], r[1]) for r in rows], [("0", "in"), ("1", "in"), ("2", "in")])
        self.assertEqual([r[2] for r in rows], [s["serial"] for s in self.ask("ssd", "list")["ssds"]])
        self.assertEqual([r[3] for r in rows], [node["address"].split(":")[0] for node in up["nodes"]])
        volumes = page.value("[...document.querySelectorAll('#volumes tbody tr')].map((tr) => [...tr.children].map((td) => td.innerText))")
        self.assertEqual([v[0] for v in volumes], ["checkpoints", "data"])
        self.assertEqual((volumes[0][1], volumes[0][4], volumes[0][6]), ("8 MiB", "trainer", "trainer"), "who holds it")
        self.assertRegex(volumes[0][7], r"^\d+ min")
        self.assertRegex(page.value("document.getElementById('events').innerText"), r"(?s)VOLUME_CREATED.*DAEMON_STARTED", "the newest first")
        self.assertEqual(page.value("document.getElementById('pill').innerText"), "ok")
        self.assertEqual(self.cli("cat", "data").stdout, data)
        page.until("Number(document.querySelector('#ssds td:nth-child(7)').innerText) >= 0")
        page.until("/[MLh]/.test(document.querySelector('.line.a').getAttribute('d'))")
        self.shot(page, "array-light")
        self.shot(page, "array-dark", dark=True)
        self.shot(page, "array-narrow", width=360)
        page.look(1600)
        self.kill(up["nodes"][1]["pid"])
        count("kills")
        page.until("/GNS_SLOT_(DOWN|OUT)/.test(document.getElementById('findings').innerText)")
        page.until("document.querySelector('#ssds tr[data-key=\"1\"] .state').innerText !== 'in'")
        found = page.value("[...document.querySelectorAll('.finding')].map((f) => f.innerText)")
        for finding in found:
            self.assertRegex(finding, r"(?s)^GNS_\w+ (error|warning): .+It means.+To do.+")
        self.assertNotEqual(page.value("document.getElementById('pill').innerText"), "ok")
        self.shot(page, "node-killed")
        self.gnstord_is_gone_and_comes_back(page, address)
        self.sane(page, address)
        for sent in page.events("Network.requestWillBeSent"):
            self.assertNotIn(self.token(), sent["request"]["url"])

    def gnstord_is_gone_and_comes_back(self, page, address):
        self.kill_daemon()
        count("kills")
        page.until("!document.getElementById('stale').hidden")
        self.assertRegex(page.value("document.getElementById('stale').innerText"), r"gnstord has not answered since \d\d:\d\d:\d\d.*All figures are from \d\d:\d\d:\d\d")
        self.assertIn("stale", page.value("document.getElementById('pill').innerText"))
        self.assertEqual(page.value(ROWS), 3, "the last figures stay")
        self.shot(page, "gnstord-gone")
        self.cli("up", "--listen", address.removeprefix("http://"), code=None)
        page.until("document.getElementById('stale').hidden && document.getElementById('identity').innerText.startsWith('term 2')")
        page.until("[...document.querySelectorAll('#events tbody tr')].at(-1).innerText.includes('DAEMON_STARTED')")
        self.assertNotIn("-", page.value("[...document.querySelectorAll('#ssds td:nth-child(n+7), #figures dd')].map((e) => e.innerText).join(' ')"))

    def test_a_token_is_asked_for_and_a_wrong_one_shows_nothing(self):
        _, address = self.serve()
        self.ask("volume", "create", "secret", "1MiB", "--as", "alice")
        page = self.page(address)
        page.until("!document.getElementById('refused').hidden")
        self.assertIn("Enter the contents of gnstord.token", page.text())
        self.shot(page, "token")
        nothing = "document.getElementById('data').hidden && document.querySelectorAll('#data tbody tr, #findings li, #nodes li, #figures *').length === 0"
        self.assertTrue(page.value(nothing))
        self.enter(page, "short")
        page.until("document.getElementById('token-trouble').innerText.includes('This is no token')")
        page.value("document.getElementById('token').value = ''")
        self.enter(page, "x" * 40)
        page.until("document.getElementById('refused').innerText.includes('refuses this token')")
        self.assertTrue(page.value(nothing))
        self.enter(page, self.token())
        page.until(f"{ROWS} === 2 && document.getElementById('token-form').hidden && document.getElementById('refused').hidden")
        self.assertIn("secret", page.text())
        # It stays in this tab alone, and is gone when it is forgotten, with all that was shown.
        self.assertEqual(page.value("[sessionStorage.length, document.getElementById('token').value]"), [1, ""])
        page.call("Page.reload")
        page.until(f"{ROWS} === 2")
        page.value("document.getElementById('token-button').click()")
        page.value("document.getElementById('token-forget').click()")
        page.until("document.getElementById('refused').innerText.includes('Enter the contents')")
        self.assertTrue(page.value(nothing))
        self.assertNotIn("secret", page.value("document.body.textContent"))
        self.assertEqual(page.value("sessionStorage.length"), 0)
        self.sane(page, address)

    def test_the_token_of_a_client_shows_what_that_client_may_see(self):
        _, address = self.serve()
        self.ask("volume", "create", "hers", "1MiB", "--as", "alice")
        self.ask("volume", "create", "his", "1MiB", "--as", "bob")
        page = self.page(address)
        self.enter(page, self.ask("client", "add", "alice")["token"])
        page.until(f"{ROWS} === 2")
        self.assertEqual(page.value("[...document.querySelectorAll('#volumes tbody th')].map((th) => th.innerText)"), ["hers"])
        for section in ("health", "capacity", "events"):
            self.assertIn("takes the token of an administrator", page.value(f"document.getElementById('{section}-refused').innerText"))
        self.shot(page, "client")
        self.sane(page, address)

    def test_hostile_text_is_text(self):
        answers = healthy()
        finding = {name: HOSTILE for name in ("code", "severity", "summary", "meaning", "action")}
        answers["/v1/health"] = {"status": "error", "findings": [{**finding, "details": [HOSTILE]}]}
        answers["/v1/status"].update(health="error", version=HOSTILE, warnings=[HOSTILE], read_only=HOSTILE)
        answers["/v1/ssds"]["ssds"][1].update({name: HOSTILE for name in ("state", "serial", "nic_address", "trouble", "firmware", "uuid")})
        answers["/v1/volumes"]["volumes"] = [volume(1, HOSTILE, owner_name=HOSTILE, readers=[1]), volume(2, "</td><script>alert(2)</script>")]
        answers["/v1/status"]["leases"] = [{"volume": 1, "volume_name": HOSTILE, "client": 1, "client_name": HOSTILE, "epoch": 1, "remaining_ms": 1000}]
        answers["/v1/clients"]["clients"][0]["name"] = HOSTILE
        answers["/v1/events"]["events"] = [event(1, HOSTILE, HOSTILE)]
        model, page = self.model(answers)
        names = page.value("[...document.querySelectorAll('#volumes tbody th')].map((th) => th.textContent)")
        self.assertEqual(sorted(names), sorted([HOSTILE, "</td><script>alert(2)</script>"]))
        page.value("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        shown = page.text()
        self.assertGreaterEqual(shown.count(HOSTILE), 15, shown)
        self.shot(page, "hostile")
        answers["/v1/status"] = (403, {"error": {"code": HOSTILE, "message": HOSTILE}})
        self.ask_again(page)
        page.until("!document.getElementById('refused').hidden")
        self.assertEqual(page.value("document.getElementById('refused').innerText"), HOSTILE)
        answers["/v1/status"] = (401, {"error": {"code": HOSTILE, "message": HOSTILE}})
        self.ask_again(page)
        page.until("document.getElementById('data').hidden")
        self.assertNotIn(HOSTILE, page.value("document.body.innerHTML.replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&quot;', '\"')"))
        self.sane(page, model.url)

    def test_a_rebuild_and_counters_that_go_back(self):
        answers = healthy()
        ssds = answers["/v1/ssds"]["ssds"]
        ssds[2].update(state="rebuilding", used_bytes=1 << 20)
        ssds[3].update(used_bytes=int(0.96 * (1 << 30)))
        spare = ssd(9, state="spare", uuid="spare")
        del spare["slot"], spare["domain"]
        ssds.append(spare)
        rebuild = {"slot": 2, "blocks_total": 1_000_000, "blocks_done": 100_000, "ranges_stuck": 0, "refusal": ""}
        answers["/v1/status"].update(rebuild=rebuild, health="warning")
        model, page = self.model(answers)
        page.until("document.getElementById('rebuild-line').innerText.includes('10 %')")
        self.assertIn("not known yet", page.value("document.getElementById('rebuild-line').innerText"))
        for one in ssds[:4]:
            one["counters"] = {"reads": 10_000, "writes": 2000, "blocks_read": 80_000, "blocks_written": 2000}
        rebuild["blocks_done"] = 250_000
        tops = "JSON.stringify([...document.querySelectorAll('section, #figures > div')].map((e) => e.getBoundingClientRect().top))"
        before = page.value(tops)
        self.ask_again(page)
        page.until("/25 %, about \\d+ (s|min)/.test(document.getElementById('rebuild-line').innerText)")
        page.until("[...document.querySelectorAll('.axis')].some((text) => text.textContent.endsWith('k/s'))")
        self.assertEqual(page.value(tops), before, "a refresh moves nothing")
        self.assertEqual(page.value("document.getElementById('rebuild-bar').getAttribute('aria-valuenow')"), "25")
        self.assertEqual(page.value("[...document.querySelectorAll('#ssds .state')].map((s) => s.innerText)"), ["in", "in", "rebuilding", "in", "spare"])
        rebuild["blocks_done"] = 300_000
        for one in ssds[:4]:
            one["counters"] = {"reads": 3, "writes": 1, "blocks_read": 3, "blocks_written": 1}  # opened again
        # A gap where no rate is known, then a line again.
        self.ask_again(page)
        page.until("document.querySelector('.line.a').getAttribute('d').split('M').length === 3")
        page.until("[...document.querySelectorAll('#ssds tbody td:nth-child(7)')].slice(0, 4).every((td) => td.innerText === '0')")
        self.assertNotRegex(page.value("document.getElementById('ssds').innerText + document.getElementById('figures').innerText"), r"-\d")
        box = page.value("(() => { const b = document.querySelector('.chart').getBoundingClientRect(); return [b.right - 11, b.top + 40]; })()")
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
        page.until("document.querySelector('.cursor').getAttribute('visibility') === 'visible' && /\\d s ago/.test(document.querySelector('figcaption').innerText)")
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
        page.until("document.querySelector('.cursor').getAttribute('visibility') === 'hidden'")
        self.shot(page, "rebuild")
        self.shot(page, "rebuild-dark", dark=True)
        self.sane(page, model.url)

    def test_the_page_is_used_with_the_keyboard_and_bears_many_volumes(self):
        answers = healthy()
        model, page = self.model(answers)
        reached = []
        for _ in range(12):
            page.press(*TAB)
            reached.append(page.value("(document.activeElement.className || '') + '#' + (document.activeElement.id || '')"))
        self.assertEqual(reached[0], "skip#")
        self.assertIn("#token-button", reached)
        self.assertGreaterEqual(sum(one.startswith("scroll") for one in reached), 3, f"tables that scroll can be scrolled with keys: {reached}")
        heads = page.value("[...document.querySelectorAll('table')].map((t) => [t.id, [...t.tHead.rows[0].cells].every((c) => c.scope === 'col' && c.innerText)])")
        self.assertEqual(len(heads), 4)
        self.assertTrue(all(good for _, good in heads), heads)
        # Of very many volumes some are left out, and the page says so; those that are open for writing are not.
        answers["/v1/volumes"]["volumes"] = [volume(n, f"v{n:05}") for n in range(1, 1001)]
        answers["/v1/status"]["leases"] = [{"volume": 1000, "volume_name": "v01000", "client": 1, "client_name": "trainer", "epoch": 1, "remaining_ms": 1000}]
        self.ask_again(page)
        page.until("document.querySelectorAll('#volumes tbody tr').length === 500")
        self.assertIn("1000, 1 open for writing; 500 of them are listed", page.value("document.getElementById('volumes-sum').innerText"))
        self.assertRegex(page.value("[...document.querySelectorAll('#volumes tbody tr')].at(-1).innerText"), r"^v01000\b.*trainer\s+1 s")
        self.sane(page, model.url)

    def test_rates_estimates_and_figures(self):
        """The parts that only compute, as the page loads them."""
        _, page = self.model(healthy())
        found = page.value("""(async () => {
            const {rateOf, SsdRates, History, Estimate} = await import("/dashboard/rates.js");
            const {pathOf, roundUp} = await import("/dashboard/chart.js");
            const {bytes, count, duration, percentText, throughput} = await import("/dashboard/format.js");
            const c = (n) => ({reads: n, writes: n, blocks_read: n, blocks_written: n});
            const rates = new SsdRates();
            const at = (ms, n) => rates.add(ms, [{uuid: "a", slot: 0, counters: n === null ? {} : c(n)}]).sum?.reads ?? null;
            const history = new History();
            for (let ms = 0; ms <= 600000; ms += 2000) history.add({ms});
            const estimate = new Estimate(), of = (done, slot = 1) => ({slot, blocks_total: 1000, blocks_done: done});
            return {
                back: [rateOf(c(5), c(4), 1), rateOf(c(5), {...c(6), writes: 4}, 1), rateOf(undefined, c(4), 1), rateOf(c(1), c(3), 0)],
                forth: rateOf(c(1), c(5), 2),
                series: [at(0, 10), at(1000, 30), at(2000, 5), at(3000, 6), at(4000, null), at(5000, 9), at(7000, 11)],
                kept: [history.points.length, history.points[0].ms],
                left: [estimate.add(0, of(0)), estimate.add(1000, of(100)).leftMs, estimate.add(2000, of(50)), estimate.add(3000, of(60, 2)), estimate.add(4000, undefined)],
                path: pathOf([{ms: 0, v: 1}, {ms: 1, v: 2}, {ms: 2, v: null}, {ms: 3, v: 3}], (p) => p.v, (x) => x, (y) => y),
                up: [0, 0.3, 1, 1.1, 7, 20, 21, 999].map(roundUp),
                texts: [bytes(0), bytes(1023), bytes(1024), bytes(1048575), bytes(1 << 28), bytes(undefined), count(999.7), count(12345), count(null), throughput(36.274e9),
                        duration(59400), duration(61000), duration(3 * 3600e3), percentText(0), percentText(0.2), percentText(99.99)],
            };
        })()""")
        self.assertEqual(found["back"], [None] * 4, "no rate where a counter went back, or nothing is to be compared")
        self.assertEqual(found["forth"], {"reads": 2, "writes": 2, "bytesRead": 8192, "bytesWritten": 8192})
        self.assertEqual(found["series"], [None, 20, None, 1, None, None, 1])
        self.assertEqual(found["kept"], [151, 300000])
        self.assertEqual(found["left"], [None, 9000, None, None, None])
        self.assertEqual(found["path"], "M0.0,1.0L1.0,2.0M3.0,3.0h0.1")
        self.assertEqual(found["up"], [1, 0.5, 1, 2, 10, 20, 50, 1000])
        self.assertEqual(found["texts"], ["0 B", "1023 B", "1 KiB", "1 MiB", "256 MiB", "\u2013", "1 k", "12.3 k", "\u2013", "36.3 GB/s", "59 s", "1 min 1 s", "3 h 0 min",
                                          "0 %", "< 1 %", "99 %"])


if __name__ == "__main__":
    if chromium() is None:
        # A line of its own: ./run test shows those that begin so.
        print("\nskipped: chromium is not installed (Debian: chromium)", flush=True)
    main("dashboard")
