"""A headless Chromium controlled over a pipe (the DevTools protocol)."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from contextlib import contextmanager
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = (
    "--headless",
    "--no-sandbox",  # root may not have one; the pages are our own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--remote-debugging-pipe",
)
PATIENCE = 60  # seconds for an answer


def find():
    """The path of a Chromium, or None."""
    given = os.environ.get("CHROMIUM")
    return given or next(filter(None, map(shutil.which, NAMES)), None)


class Tab:
    """An open page: commands go out, answers and events come in."""

    def __init__(self, to, back):
        self.to, self.back, self.buffer = to, back, b""
        self.sent, self.session, self.events = 0, None, []

    def send(self, method, **params):
        """The answer to a command; events that come before it are kept."""
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": params}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            found = self.read()
            if found.get("id") == self.sent:
                assert "error" not in found, (method, found["error"])
                return found["result"]
            self.events.append(found)

    def read(self, patience=PATIENCE):
        """The next message."""
        end = time.monotonic() + patience
        while b"\0" not in self.buffer:
            rest = max(0, end - time.monotonic())
            assert select.select([self.back], [], [], rest)[0], "no answer in time"
            came = os.read(self.back, 1 << 20)
            assert came, "the browser has ended"
            self.buffer += came
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def wait_for(self, method):
        """Reads on until the event has come."""
        while all(event.get("method") != method for event in self.events):
            self.events.append(self.read())

    def open(self, path, scripts=True, dark=False, width=1400):
        """Loads a file; the messages of console and log, and what it asked for."""
        scheme = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        ]
        self.send("Emulation.setEmulatedMedia", features=scheme)
        self.send("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.send(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )
        self.events.clear()
        self.send("Page.navigate", url=Path(path).resolve().as_uri())
        self.wait_for("Page.loadEventFired")
        self.run("1")  # what the page logged comes before this answer

    def of(self, *methods):
        """The parameters of these events since the page was opened."""
        return [e["params"] for e in self.events if e.get("method") in methods]

    def run(self, code):
        """The value of an expression, which a page without scripts has as well."""
        found = self.send("Runtime.evaluate", expression=code, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def click(self, selector):
        """Presses the middle of an element with the mouse."""
        at = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', inline: 'center'});"
            "const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        where = {"x": at[0], "y": at[1], "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, **where)

    def press(self, key, code, text=""):
        """One key, to whoever has the focus."""
        params = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **params)
        self.send("Input.dispatchKeyEvent", type="keyUp", **params)

    def screenshot(self):
        """The whole page as a PNG."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        params = {"captureBeyondViewport": True, "clip": size | {"scale": 1}}
        found = self.send("Page.captureScreenshot", **params)
        return base64.b64decode(found["data"])


@contextmanager
def tab(profile):
    """A tab of a Chromium of its own, whose profile is the folder `profile`."""
    ours, theirs = os.pipe(), os.pipe()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (ours[0], theirs[1])]
    silence = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, fd, at) for at, fd in enumerate(high, start=3)]
    actions += [(os.POSIX_SPAWN_DUP2, silence, at) for at in (1, 2)]
    command = [find(), *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
    process = os.posix_spawn(
        command[0], command, os.environ, file_actions=actions, setpgroup=0
    )
    for fd in (*high, ours[0], theirs[1], silence):
        os.close(fd)
    try:
        yield _attached(Tab(ours[1], theirs[0]))
    finally:
        os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(ours[1])
        os.close(theirs[0])


def _attached(found):
    """The tab of a browser that just began, with its events switched on."""
    target = found.send("Target.createTarget", url="about:blank")["targetId"]
    params = {"targetId": target, "flatten": True}
    found.session = found.send("Target.attachToTarget", **params)["sessionId"]
    for domain in ("Page", "Runtime", "Log", "Network"):
        found.send(f"{domain}.enable")
    return found
