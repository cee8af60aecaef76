"""Libraries with faults and programs for older systems, compiled by the toolchain image's gcc."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from builder.io.wiring import Wiring
from tests.elsewhere.systems import DEBIAN_11, run, tar
from tests.support import ROOT

_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_FOR_DEBIAN_11 = """
dpkg -x /headers.deb /tmp/headers
gcc -std=c11 -O2 -I/tmp/headers/usr/include/onnxruntime -no-pie -nostdlib -Wl,--allow-shlib-undefined \
    -o /out/smoke-debian-11 /system/crt1.o /system/crti.o /smoke.c \
    /system/libdl.so.2 /system/libc.so.6 /system/libc_nonshared.a /system/crtn.o
"""
"""Script that links with Debian 11's start-up code and C library, and so with their symbol versions."""


@dataclass(frozen=True)
class Compiler:
    """The compiler gcc in ``image``, which writes its results to ``folder``."""

    image: str
    folder: Path

    def make(self, name: str, source: str, *options: str) -> Path:
        """Compile C and return the path of the result; ``/out`` in the options stands for ``folder``."""
        (self.folder / f"{name}.c").write_text(source, encoding="utf-8")
        self._run(f"gcc -o /out/{name} /out/{name}.c {' '.join(options)}", {})
        return self.folder / name

    def smoke_for_debian_11(self) -> Path:
        """Return the smoke program, linked as if it was compiled on Debian 11."""
        shop = Wiring(ROOT)
        system = self.folder / "debian-11"
        system.mkdir()
        argv = ["tar", f"--directory={system}", "--strip-components=4", "-xf", str(tar(DEBIAN_11))]
        subprocess.run([*argv, f"./{_LIBRARIES}"], check=True)
        headers = shop.store(shop.lock).fetch(shop.project.check.headers)
        mounts = {"/system": system, "/headers.deb": headers, "/smoke.c": shop.templates / "smoke.c"}
        self._run(_FOR_DEBIAN_11, mounts)
        return self.folder / "smoke-debian-11"

    def _run(self, script: str, mounts: dict[str, Path]) -> None:
        argv = ["/bin/sh", "-euc", script]
        done = run(self.image, argv, mounts={**mounts, "/out": self.folder}, writable=("/out",))
        assert done.returncode == 0, done.stdout + done.stderr
