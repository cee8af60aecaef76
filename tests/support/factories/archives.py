"""Factories of tar and zip archives with chosen, also wrong, headers."""

import io
import struct
import tarfile
import zipfile
from collections.abc import Mapping


def member(name: str, data: bytes = b"", **header: object) -> tuple[tarfile.TarInfo, bytes]:
    """Return a member with a true header, in which ``header`` replaces attributes of ``TarInfo``."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in header.items():
        setattr(info, key, value)
    return info, data


def tar(*members: tuple[tarfile.TarInfo, bytes], end: bytes = bytes(1024)) -> bytes:
    """Return a tar of these members, each with its header as given, even if the header is wrong."""
    parts = []
    for info, data in members:
        parts += [info.tobuf(tarfile.GNU_FORMAT), data, bytes(-len(data) % 512)]
    return b"".join(parts) + end


def files(contents: Mapping[str, bytes]) -> bytes:
    """Return a tar of plain files, given as bytes by name."""
    return tar(*(member(name, data) for name, data in contents.items()))


def pax_tar(records: Mapping[str, str], name: str, data: bytes) -> bytes:
    """Return a tar of one member that has these pax records."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info, _ = member(name, data, pax_headers=dict(records))
        archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def zipped(contents: Mapping[str, bytes]) -> bytes:
    """Return a zip of plain files, given as bytes by name."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return data.getvalue()


def zip_claiming(size: int, contents: Mapping[str, bytes]) -> bytes:
    """Return a zip whose directory claims ``size`` bytes for the last of its files."""
    data = bytearray(zipped(contents))
    where = data.rindex(b"PK\x01\x02") + 24
    data[where : where + 4] = struct.pack("<I", size)
    return bytes(data)
