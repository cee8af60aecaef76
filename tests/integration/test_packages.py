"""Tests of real packages: their files, bytes and manifests."""

from pathlib import Path

from tests.support import ran
from tests.support.real_packages import LIBRARIES, MINIMAL, listing, manifest


def test_a_package_holds_every_library_as_a_real_file(legacy_package: Path, modern_package: Path) -> None:
    for package, libraries in ((legacy_package, MINIMAL), (modern_package, LIBRARIES)):
        rows = listing(package)
        assert all(row.startswith("-") for row in rows), "only regular files"
        assert rows[0].endswith("/manifest.json")
        names = {row.rsplit("/", maxsplit=1)[1] for row in rows if "/lib/" in row}
        assert names == libraries


def test_packages_have_the_bytes_they_had_before(modern_package: Path, dist: Path, root: Path) -> None:
    """A change that is meant to change packages changes ``packages.sha256`` too, and its author says why.

    A compiled package names the state of Debian's archive, so its bytes change with that.
    """
    golden = root / "tests/golden/packages.sha256"
    argv = ["sha256sum", "--check", "--ignore-missing", str(golden)]
    done = ran(argv, cwd=dist)
    told = done.stdout.splitlines()
    assert f"{modern_package.name}: OK" in told
    assert all(line.endswith(": OK") for line in told)


def test_legacy_runs_where_no_official_build_does(legacy_package: Path) -> None:
    said = manifest(legacy_package)
    capabilities = said["capabilities"]
    assert isinstance(capabilities, dict)
    for device in ("5.0", "5.2", "6.0", "6.1", "7.0"):
        assert capabilities[device] == "native", device
    for device in ("5.3", "6.2", "7.2", "8.0", "8.9", "12.0"):
        assert capabilities[device] == "none", device
    assert said["driver"] == {"floor": "525.60.13", "ceiling": "580"}
