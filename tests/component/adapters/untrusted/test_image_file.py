"""Tests of container images as files: the final image's libraries, and files that contradict themselves."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from backports.zstd import compress

from builder.adapters.untrusted.opener import Opener
from builder.errors import NothingToDoError
from tests.support.factories.archives import Layout, docker_save, files, member, tar
from tests.support.opened import LIBRARY, OTHER, Holds, Refuses, found, refused

LOWER = files(
    {
        "usr/lib/kept.so": LIBRARY,
        "usr/lib/replaced.so": LIBRARY,
        "usr/lib/removed.so": LIBRARY,
        "usr/lib/linked.so": LIBRARY,
        "opt/old/a.so": LIBRARY,
        "opt/dropped/deep/b.so": LIBRARY,
        "opt/file/c.so": LIBRARY,
        "bin/tool": OTHER,
        "etc/passwd": b"root",
    }
)

UPPER = tar(
    member("usr/lib/replaced.so", OTHER),
    member("usr/lib/.wh.removed.so"),
    member("usr/lib/linked.so", type=tarfile.SYMTYPE, linkname="kept.so"),
    member("opt/old/new.so", OTHER),
    member("opt/old/.wh..wh..opq"),
    member("opt/.wh.dropped"),
    member("opt/file", b"now a file"),
    member(".wh..wh.plnk", type=tarfile.DIRTYPE),
)

FINAL = {"usr/lib/kept.so": LIBRARY, "usr/lib/replaced.so": OTHER, "opt/old/new.so": OTHER, "bin/tool": OTHER}
"""Files of the final image, derived by hand from the two layers above."""


def unpacked(contents: Mapping[str, bytes], folder: Path) -> Path:
    with tarfile.open(fileobj=io.BytesIO(files(contents))) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("outer", [bytes, gzip.compress, compress], ids=["plain", "gzip", "zstd"])
def test_docker_save_is_what_the_last_layer_leaves(holds: Holds, outer: type[bytes]) -> None:
    assert holds(outer(docker_save([LOWER, UPPER]))) == FINAL


@pytest.mark.parametrize("outer", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("inner", [bytes, gzip.compress, compress], ids=["plain", "gzip", "zstd"])
def test_an_oci_layout_as_a_tar(holds: Holds, outer: type[bytes], inner: type[bytes]) -> None:
    layout = Layout()
    contents = layout.index(layout.image(inner(LOWER), inner(UPPER)))
    assert holds(outer(files({f"./{name}": data for name, data in contents.items()}))) == FINAL


@pytest.mark.parametrize("pack", [bytes, gzip.compress, compress], ids=["plain", "gzip", "zstd"])
def test_a_layer_without_a_file_changes_nothing(holds: Holds, pack: type[bytes]) -> None:
    """BuildKit writes such a layer, a tar of nothing but its end, for a WORKDIR that is there already."""
    layout = Layout()
    image = layout.image(gzip.compress(LOWER), pack(bytes(1024)), gzip.compress(UPPER))
    assert holds(files(layout.index(image))) == FINAL


def test_an_oci_layout_as_a_folder(opener: Opener, work: Path) -> None:
    layout = Layout()
    folder = unpacked(layout.index(layout.image(gzip.compress(LOWER), compress(UPPER))), work / "app")
    assert found(opener, folder) == FINAL


def test_the_order_of_the_layers_is_the_manifests(holds: Holds) -> None:
    layout = Layout()
    upper, lower = layout.blob(UPPER), layout.blob(LOWER)
    image = layout.document(config={}, layers=[lower, upper])
    assert holds(files(layout.index(image))) == FINAL


def test_a_layer_that_stands_there_twice_is_a_link(holds: Holds) -> None:
    again = holds(docker_save([LOWER, UPPER, LOWER]))
    assert again["usr/lib/removed.so"] == LIBRARY
    assert again["opt/old/new.so"] == OTHER


def test_a_second_name_of_a_file_lives_on_when_the_first_is_removed(opener: Opener, work: Path) -> None:
    lower = tar(member("a.so", LIBRARY), member("b.so", type=tarfile.LNKTYPE, linkname="a.so"))
    (work / "one.tar").write_bytes(docker_save([lower]))
    (work / "two.tar").write_bytes(docker_save([lower, files({".wh.a.so": b""})]))
    assert found(opener, work / "one.tar") == {"a.so": LIBRARY}
    assert found(opener, work / "two.tar") == {"b.so": LIBRARY}


def test_a_whiteout_of_its_own_layer_hides_nothing_of_it(holds: Holds) -> None:
    """OCI layer.md: whiteouts apply to lower layers, wherever in the tar they are."""
    both = tar(
        member("a/x.so", OTHER), member("a/.wh..wh..opq"), member("a/.wh.y.so"), member("a/y.so", OTHER)
    )
    lower = files({"a/x.so": LIBRARY, "a/z.so": LIBRARY})
    assert holds(docker_save([lower, both])) == {"a/x.so": OTHER, "a/y.so": OTHER}


def test_an_opaque_root_leaves_nothing_below(holds: Holds) -> None:
    assert holds(docker_save([LOWER, files({".wh..wh..opq": b"", "a.so": OTHER})])) == {"a.so": OTHER}


def test_a_signature_beside_an_image_is_no_image(holds: Holds, refuses: Refuses) -> None:
    """``cosign save`` puts the signatures, manifests with JSON as their layers, into the image's index."""
    layout = Layout()
    packed = layout.blob(LOWER) | {"mediaType": "application/vnd.oci.image.layer.v1.tar"}
    image = layout.document(layers=[packed, layout.blob(UPPER)])
    json_layer = layout.blob(b"{}") | {"mediaType": "application/vnd.dev.cosign.simplesigning.v1+json"}
    signature = layout.document(layers=[json_layer])
    assert holds(files(layout.index(image, signature))) == FINAL
    assert "none of its manifests is that of an image" in refuses(files(layout.index(signature)))


def test_images_for_several_platforms_stand_side_by_side(holds: Holds) -> None:
    layout = Layout()
    amd = layout.image(files({"a.so": LIBRARY})) | {"platform": {"os": "linux", "architecture": "amd64"}}
    arm = layout.image(files({"a.so": OTHER})) | {
        "platform": {"os": "linux", "architecture": "arm", "variant": "v7"}
    }
    proof = layout.image(b"{}") | {"annotations": {"vnd.docker.reference.type": "attestation-manifest"}}
    name = {"annotations": {"org.opencontainers.image.ref.name": "app:1"}}
    assert holds(files(layout.index(layout.document(manifests=[amd, arm, proof]) | name, amd))) == {
        "app:1 linux/amd64:/a.so": LIBRARY,
        "app:1 linux/arm/v7:/a.so": OTHER,
    }


def test_an_attestation_beside_one_image_is_no_image(holds: Holds) -> None:
    layout = Layout()
    proof = layout.image(b"{}") | {"annotations": {"vnd.docker.reference.type": "attestation-manifest"}}
    index = layout.index(layout.document(manifests=[layout.image(LOWER, UPPER), proof]))
    assert holds(files(index)) == FINAL


def test_images_of_one_label_are_told_apart(holds: Holds) -> None:
    layout = Layout()
    platform = {"platform": {"os": "linux", "architecture": "amd64"}}
    one, two = (layout.image(files({"a.so": data})) | platform for data in (LIBRARY, OTHER))
    assert holds(files(layout.index(one, two))) == {
        "linux/amd64 (1):/a.so": LIBRARY,
        "linux/amd64 (2):/a.so": OTHER,
    }


@pytest.mark.parametrize("name", ["manifest.json", "index.json"])
@pytest.mark.parametrize("document", [b'{"name": "x"}', b"[1, 2]", b"no json", b"", b"[" * 100_000])
def test_documents_of_something_else_make_no_image(
    opener: Opener, work: Path, name: str, document: bytes
) -> None:
    contents = {name: document, "lib/a.so": LIBRARY}
    (work / "x.tar").write_bytes(files(contents))
    assert found(opener, work / "x.tar") == {"lib/a.so": LIBRARY}
    assert found(opener, unpacked(contents, work / "x")) == {"lib/a.so": LIBRARY}


def test_an_image_without_libraries_holds_none(holds: Holds) -> None:
    with pytest.raises(NothingToDoError, match=r"^No library for Linux or Windows in "):
        holds(docker_save([LOWER, files({".wh..wh..opq": b""})]))


def without(data: bytes, name: str) -> bytes:
    """Return the tar ``data`` without the member ``name``."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        kept = [
            (info, content.read() if content else b"")
            for info in archive
            if info.name != name
            for content in [archive.extractfile(info) if info.isreg() else None]
        ]
    return tar(*kept)


@pytest.mark.parametrize("kind", ["docker", "oci", "oci-folder"])
def test_an_image_without_its_manifest_is_told(opener: Opener, work: Path, kind: str) -> None:
    layout = Layout()
    contents = layout.index(layout.image(LOWER))
    del contents["index.json"]
    path = work / "app"
    if kind == "oci-folder":
        unpacked(contents, path)
    else:
        docker = without(docker_save([LOWER]), "manifest.json")
        path.write_bytes(docker if kind == "docker" else files(contents))
    told = refused(opener, path)
    assert "has the parts of a container image, but neither docker's manifest.json nor OCI's" in told
    assert told.endswith("Save the image again.")


@pytest.mark.parametrize("kind", ["docker", "oci", "oci-folder"])
def test_an_image_without_a_layer_is_told(opener: Opener, work: Path, kind: str) -> None:
    layout = Layout()
    layer = layout.blob(UPPER)
    contents = layout.index(layout.document(config={}, layers=[layout.blob(LOWER), layer]))
    del contents["blobs/" + str(layer["digest"]).replace(":", "/")]
    path = work / "app"
    if kind == "oci-folder":
        unpacked(contents, path)
    else:
        path.write_bytes(docker_save([LOWER, UPPER], drop=1) if kind == "docker" else files(contents))
    assert "is not there (1 of 2 are missing). Save the image again." in refused(opener, path)


@pytest.mark.parametrize("outer", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("inner", [bytes, gzip.compress, compress], ids=["plain", "gzip", "zstd"])
def test_a_damaged_layer_is_told_by_its_name(
    refuses: Refuses, inner: type[bytes], outer: type[bytes]
) -> None:
    layout = Layout()
    data = inner(LOWER)
    cut = layout.blob(data[: len(data) // 2 + 100])
    index = layout.index(layout.document(config={}, layers=[cut]))
    assert f"layer blobs/sha256/{str(cut['digest'])[7:]} cannot be read: " in refuses(outer(files(index)))


def docker_manifest(layers: object) -> bytes:
    return files({"manifest.json": json.dumps([{"Layers": layers}]).encode(), "layer.tar": LOWER})


@pytest.mark.parametrize("layers", [5, [5], "layer.tar", [["layer.tar"]], {"a": 1}, ["../../etc/passwd"]])
def test_a_manifest_that_names_no_layers_is_told(refuses: Refuses, layers: object) -> None:
    assert refuses(docker_manifest(layers)).endswith("Save the image again.")


@pytest.mark.parametrize(
    "entry",
    [
        5,
        {},
        {"digest": 5},
        {"digest": "sha256:../../../../etc/passwd"},
        {"digest": "sha256:" + "0" * 64},
    ],
)
@pytest.mark.parametrize("place", ["index", "layers"])
def test_a_digest_that_is_none_is_told(opener: Opener, work: Path, entry: object, place: str) -> None:
    layout = Layout()
    broken = [entry] if place == "index" else [layout.document(config={}, layers=[entry])]
    contents = {
        **layout.contents,
        "index.json": json.dumps({"schemaVersion": 2, "manifests": broken}).encode(),
    }
    (work / "app.tar").write_bytes(files(contents))
    assert refused(opener, work / "app.tar").endswith("Save the image again.")
    assert refused(opener, unpacked(contents, work / "app")).endswith("Save the image again.")


def test_a_layer_that_is_a_link_to_itself_is_told(refuses: Refuses) -> None:
    manifest = json.dumps([{"Layers": ["a/layer.tar"]}]).encode()
    loop = member("a/layer.tar", type=tarfile.SYMTYPE, linkname="../a/layer.tar")
    assert "a/layer.tar is a link to itself" in refuses(tar(loop, member("manifest.json", manifest)))


def test_an_index_that_is_listed_twice_is_read_once(holds: Holds) -> None:
    layout = Layout()
    inner = layout.image(LOWER)
    for _ in range(40):
        inner = layout.document(manifests=[inner, inner])
    assert len(holds(files(layout.index(inner, inner)))) == 8


def test_documents_without_end_are_not_taken_into_memory(refuses: Refuses) -> None:
    layout = Layout()
    for number in range(17):
        layout.blob(b"{" + b"%02d" % number + b" " * 4_190_000)
    assert "its documents have more than 67,108,864 bytes" in refuses(
        gzip.compress(files(layout.index()), compresslevel=1)
    )


def listed(*images: list[str], **layers: bytes) -> bytes:
    """Return a ``docker save`` archive with one manifest entry for each image."""
    manifest = [{"RepoTags": [f"app:{place}"], "Layers": names} for place, names in enumerate(images)]
    return files({**layers, "manifest.json": json.dumps(manifest).encode()})


@pytest.fixture
def soon() -> Iterator[None]:
    """Limit the test's processor time to 4 s, three times the need; the defect took over ten
    times as long."""
    started = time.process_time()
    yield
    assert time.process_time() - started < 4


@pytest.mark.usefixtures("soon")
def test_a_layer_that_lies_under_itself_is_gone_through_once(holds: Holds) -> None:
    names = [member(f"d/{place:04}", type=tarfile.LNKTYPE, linkname="a.so") for place in range(9000)]
    many = tar(member("a.so", LIBRARY), *names)
    assert holds(gzip.compress(listed(["l"] * 1024, l=many))) == {"a.so": LIBRARY}


@pytest.mark.usefixtures("soon")
def test_more_layers_than_any_image_has_are_told(refuses: Refuses) -> None:
    told = refuses(listed(["l"] * 1025, l=LOWER))
    assert "app:0 has 1,025 layers; at most 1,024 are read. Save the image again." in told


@pytest.mark.usefixtures("soon")
def test_images_that_share_layers_in_every_order_are_told(refuses: Refuses) -> None:
    layers = {f"l{place}": files({f"{place}/{name}": b"" for name in range(300)}) for place in range(9)}
    orders = [[*list(layers)[place:], *list(layers)[:place]] for place in range(9)]
    images = [[*order, *orders[0][:extra]] for order in orders for extra in range(110)]
    assert "has more files than belong into an archive of its size." in refuses(
        gzip.compress(listed(*images, **layers))
    )


@pytest.mark.usefixtures("soon")
def test_more_images_than_are_saved_in_one_file_are_told(refuses: Refuses) -> None:
    images = [["l"] * (place % 900 + 1) for place in range(1025)]
    assert "1,025 images; at most 1,024 are read" in refuses(listed(*images, l=LOWER))


@pytest.mark.usefixtures("soon")
def test_a_thousand_images_have_their_labels_compared_once(holds: Holds) -> None:
    many = files({f"{place}.so": LIBRARY for place in range(4)})
    images = [["l"] * (place + 1) for place in range(1000)]
    assert len(holds(listed(*images, l=many))) == 4000


@pytest.mark.usefixtures("soon")
def test_indexes_of_a_chain_without_end_are_told(refuses: Refuses) -> None:
    layout = Layout()
    inner = layout.image(LOWER)
    short = {"digest": inner["digest"]}
    for _ in range(4):
        short = {"digest": layout.document(manifests=[short] + [short] * 40_000)["digest"]}
    assert "its indexes have more than 4,096 entries" in refuses(files(layout.index(short)))


def test_a_label_without_end_is_cut(holds: Holds) -> None:
    manifest = [{"RepoTags": [mark * 100_000], "Layers": [mark]} for mark in "ab"]
    data = {"a": files({"x.so": LIBRARY}), "b": files({"x.so": OTHER})}
    names = [f"{mark * 255}…:/x.so" for mark in "ab"]
    assert holds(files({**data, "manifest.json": json.dumps(manifest).encode()})) == dict(
        zip(names, (LIBRARY, OTHER), strict=True)
    )
