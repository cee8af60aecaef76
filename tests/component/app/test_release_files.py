"""What is made for a release besides its packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from builder.app.releasing import add_inspector
from builder.builds.wiring import Wiring
from builder.files.digest import file_digest
from tests.support.fakes.ports import FakeReporter


def test_inspect_in_one_file_is_made_and_listed(tmp_path: Path, root: Path) -> None:
    """Whatever ``SHA256SUMS`` lists goes up."""
    shop = Wiring(root, dist=tmp_path, reporter=FakeReporter())
    add_inspector(shop)
    (inspector,) = tmp_path.glob("*.pyz")
    assert shop.checksums.read(tmp_path) == {"ortpacks-inspect.pyz": file_digest(inspector).sha256}
    argv = [sys.executable, str(inspector), "--help"]
    assert "--deep" in subprocess.run(argv, capture_output=True, text=True, check=True).stdout
