"""Driver of a real browser, Debian's Chromium, by the Chrome DevTools Protocol over a pipe."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH: apt-get install chromium")


class Browser:
    """A tab of a headless Chromium. A message of the protocol is JSON text that ends with a zero byte."""

    def __init__(self, profile: Path) -> None:
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()

        def wire() -> None:  # the protocol's descriptors are 3 and 4
            os.dup2(os.dup(commands), 3)
            os.dup2(os.dup(answers), 4)

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        self._process = subprocess.Popen(
            [str(CHROMIUM), *flags, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=wire,  # noqa: PLW1509 - no thread has been started
            pass_fds=(3, 4) if (commands, answers) == (3, 4) else (commands, answers, 3, 4),
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._rest, self._number, self._session = b"", 0, ""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def ask(self, method: str, **given: object) -> dict[str, Any]:
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": given}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                come = os.read(self._answers, 1 << 16)
                assert come, "the browser has ended"
                self._rest += come
            text, _, self._rest = self._rest.partition(b"\0")
            answer = json.loads(text)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def run(self, script: str) -> object:
        found = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def text_once(self, element: str, *without: str) -> str:
        """Return the text of the element that the selector ``element`` finds, once it is none of ``without``.

        Raises ``AssertionError`` after 10 seconds without such a text.
        """
        return str(
            self.run(
                f"""new Promise((done, fail) => {{
                    const begun = performance.now(), look = () => {{
                        const text = document.querySelector({element!r})?.textContent ?? "";
                        if (!{json.dumps(without)}.includes(text.trim())) done(text);
                        else if (performance.now() - begun > 10000) fail(new Error({element!r}));
                        else setTimeout(look, 20);
                    }};
                    look();
                }})"""
            )
        )

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._commands)
        os.close(self._answers)
