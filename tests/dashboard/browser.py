"""A headless Chromium that a test drives: DevTools protocol over a pipe (descriptors 3 and 4), standard library only. Waiting is for
conditions: an expression of the page that becomes true, looked at whenever the page changes."""
import base64
import json
import os
import select
import shutil
import struct
import subprocess
import tempfile
import time
import zlib

DEADLINE_S = 60  # of any one answer of the browser, and of any condition of a page
NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium():
    """The program, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    def __init__(self, program):
        self.profile = tempfile.TemporaryDirectory(prefix="gnstor-chromium-", ignore_cleanup_errors=True)
        here, there = os.pipe()
        answers, says = os.pipe()
        words = [program, "--headless", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "--no-first-run", "--disable-gpu",
                 "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
                 "--disable-sync", "--hide-scrollbars", "--force-color-profile=srgb"]
        if os.geteuid() == 0:
            words.append("--no-sandbox")  # Chromium has none as root

        def wire():
            # Moved out of the way first: one of them may have the number that the other is to get.
            read, write = os.dup(here), os.dup(says)
            high = [os.dup2(read, 200), os.dup2(write, 201)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(words, preexec_fn=wire, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(here)
        os.close(says)
        self.to, self.answers = there, answers
        self.left, self.number, self.events = b"", 0, []

    def close(self):
        self.process.kill()
        self.process.wait(DEADLINE_S)
        os.close(self.to)
        os.close(self.answers)
        self.profile.cleanup()

    def receive(self, end):
        while b"\0" not in self.left:
            if not select.select([self.answers], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError("Chromium does not answer")
            piece = os.read(self.answers, 1 << 20)
            if not piece:
                raise AssertionError("Chromium has ended")
            self.left += piece
        message, self.left = self.left.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        end = time.monotonic() + 2 * DEADLINE_S
        while (answer := self.receive(end)).get("id") != self.number:
            self.events.append(answer)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def page(self):
        return Page(self)


class Page:
    """A tab with a profile of its own: no storage of another one."""

    def __init__(self, browser):
        self.browser = browser
        self.context = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.look(1600)

    def close(self):
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def events(self, method):
        """All so far, of this page."""
        return [e["params"] for e in self.browser.events if e.get("sessionId") == self.session and e["method"] == method]

    def look(self, width, dark=False, height=1000):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until("location.href !== 'about:blank' && document.readyState === 'complete'")

    def value(self, expression):
        """Of JavaScript; promises are waited for."""
        done = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in done:
            raise AssertionError(f"{expression}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def until(self, condition):
        """Waits until the condition holds, and says what the page shows if it does not."""
        begun = time.monotonic()
        while time.monotonic() < begun + DEADLINE_S:
            try:
                held = self.value(f"""new Promise((done) => {{
                    const holds = () => {{ try {{ return Boolean({condition}); }} catch {{ return false; }} }};
                    if (holds()) return done(true);
                    const watch = new MutationObserver(() => {{ if (holds()) {{ watch.disconnect(); done(true); }} }});
                    watch.observe(document, {{subtree: true, childList: true, attributes: true, characterData: true}});
                    addEventListener("load", () => done(holds()));
                    setTimeout(() => done(holds()), {DEADLINE_S * 1000});
                }})""")
            except AssertionError as error:
                if "navigated" in str(error) or "destroyed" in str(error):
                    continue  # the page that was asked has gone
                raise
            if held:
                return
        raise AssertionError(f"never: {condition}; the page shows:\n{self.text()}")

    def text(self):
        """What a reader sees."""
        return self.value("document.body.innerText")

    def type(self, selector, text):
        self.value(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)

    def press(self, key, code):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text="\r" if key == "Enter" else "")

    def image(self, clip=None, scale=1.0):
        """PNG of the whole page, or of a part of it."""
        if clip is None:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"]}
        shot = self.call("Page.captureScreenshot", format="png", clip={**clip, "scale": scale}, captureBeyondViewport=True)
        return base64.b64decode(shot["data"])


def pixels(png):
    """Rows of (r, g, b) of a PNG of 8 bits a channel, not interlaced, as Chromium makes them."""
    at, data, head = 8, b"", None
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at:at + 8])
        body = png[at + 8:at + 8 + length]
        if kind == b"IHDR":
            head = struct.unpack(">IIBBBBB", body)
        if kind == b"IDAT":
            data += body
        at += 12 + length
    width, height, depth, colour, _, _, interlaced = head
    if depth != 8 or colour not in (2, 6) or interlaced:
        raise AssertionError(f"a PNG of another kind: {head}")
    step = 3 if colour == 2 else 4
    raw, rows, above = zlib.decompress(data), [], bytearray(width * step)
    for y in range(height):
        start = y * (width * step + 1)
        line = unfiltered(raw[start], bytearray(raw[start + 1:start + 1 + width * step]), above, step)
        rows.append([tuple(line[x:x + 3]) for x in range(0, len(line), step)])
        above = line
    return rows


def unfiltered(kind, line, above, step):
    """A row of a PNG (PNG specification, 9.2)."""
    for i, value in enumerate(line):
        left, up, corner = (line[i - step], above[i], above[i - step]) if i >= step else (0, above[i], 0)
        if kind == 1:
            value += left
        elif kind == 2:
            value += up
        elif kind == 3:
            value += (left + up) // 2
        elif kind == 4:
            guess = left + up - corner
            value += min((left, up, corner), key=lambda near: abs(guess - near))
        line[i] = value & 255
    return line


def variance(rows):
    """Of the brightness; 0: one colour."""
    values = [sum(pixel) / 3 for row in rows for pixel in row]
    mean = sum(values) / len(values)
    return sum((v - mean) ** 2 for v in values) / len(values)
