"""Handlers of the GitHub double's two hosts, with a method for each route. See ``tests.doubles.github``."""

import json
import re
from html import escape
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from tests.doubles.github_base import REPO, Handler, NotFoundError, Route, StoredRelease, known, renamed
from tests.doubles.github_required_keys import of_annotation

MOVED = "6" * 40
"""Commit to which another client moves a tag."""

EDITED = "somebody-elses"
"""Text that another client writes in the place of a release's tag, title or notes."""


class ApiHandler(Handler):
    """The handler for api.github.com, and for github.com's downloads."""

    routes: ClassVar[tuple[Route, ...]] = (
        Route("GET", r"/repos/(?P<repo>[^/]+/[^/]+)", "access", True),
        Route("GET", r"/repos/(?P<repo>[^/]+/[^/]+)/immutable-releases", "immutable", False),
        Route("GET", r"/repos/(?P<repo>[^/]+/[^/]+)/git/ref/tags/(?P<tag>.+)", "ref", True),
        Route("GET", r"/repos/(?P<repo>[^/]+/[^/]+)/git/tags/(?P<sha>[0-9a-f]+)", "annotation", True),
        Route("GET", rf"{REPO}/latest", "newest", True),
        Route("GET", rf"{REPO}/tags/(?P<tag>.+)", "tag", True),
        Route("GET", rf"{REPO}/assets/(?P<number>\d+)", "asset", True),
        Route("DELETE", rf"{REPO}/assets/(?P<number>\d+)", "delete", False),
        Route("GET", rf"{REPO}/(?P<number>\d+)/assets", "assets", True),
        Route("PATCH", rf"{REPO}/(?P<number>\d+)", "publish", False),
        Route("GET", REPO, "list", True),
        Route("POST", REPO, "create", False),
        Route("GET", r"/(?P<repo>[^/]+/[^/]+)/releases/latest/download/(?P<name>[^/]+)", "latest", True),
        Route("GET", r"/(?P<repo>[^/]+/[^/]+)/releases/expanded_assets/(?P<tag>.+)", "expanded", True),
        Route(
            "GET", r"/(?P<repo>[^/]+/[^/]+)/releases/download/(?P<tag>.+)/(?P<name>[^/]+)", "download", True
        ),
    )

    def access(self) -> None:
        """Answer with the repository; only an answer to a token has permissions."""
        double = self.double
        value: dict[str, object] = {"full_name": double.repository, "private": False, "archived": False}
        if self.authorized and double.push is not None:
            rest = dict.fromkeys(("maintain", "triage"), False)
            value["permissions"] = {**rest, "admin": double.admin, "push": double.push, "pull": True}
        scopes = {} if double.scopes is None else {"X-OAuth-Scopes": double.scopes}
        self.answer(200, value, scopes)

    def immutable(self) -> None:
        double = self.double
        if double.enterprise:
            headers = {"X-GitHub-Enterprise-Version": double.enterprise}
            return self.answer(404, {"message": "Not Found"}, headers)
        if not double.admin:
            return self.answer(403, {"message": "Must have admin rights to Repository."})
        if not double.immutable:
            return self.answer(404, {"message": "Not Found"})
        return self.answer(200, {"enabled": True, "enforced_by_owner": False})

    def ref(self, tag: str) -> None:
        """Answer with the tag's object; the fault ``move`` moves the tag before."""
        if self.fault and self.fault.kind == "move":
            self.double.tags[tag] = MOVED
        named = known(self.double.tags.get(tag))
        git = f"{self.double.url}/repos/{self.double.repository}/git"
        value = {"ref": f"refs/tags/{tag}", "url": f"{git}/refs/tags/{tag}", "object": self._object(named)}
        self.answer(200, {**value, "node_id": "REF_double"})

    def annotation(self, sha: str) -> None:
        named = known(self.double.annotated.get(sha))
        value = {"sha": sha, "object": self._object(named), **of_annotation(self._object(sha)["url"])}
        self.answer(200, value)

    def _object(self, sha: str) -> dict[str, str]:
        kind = "tag" if sha in self.double.annotated else "commit"
        git = f"{self.double.url}/repos/{self.double.repository}/git"
        return {"sha": sha, "type": kind, "url": f"{git}/{kind}s/{sha}"}

    def newest(self) -> None:
        self.answer(200, self.double.release_json(known(self.double.latest())))

    def tag(self, tag: str) -> None:
        self.answer(200, self.double.release_json(known(self.double.published(tag))))

    def list(self) -> None:
        seen = [item for item in reversed(self.double.releases.values()) if self.authorized or not item.draft]
        self.page([self.double.release_json(item) for item in seen])

    def create(self) -> None:
        content = self.read_json()
        if content is None:
            return None
        tag = content.get("tag_name")
        if not tag:
            return self.invalid("Release", "missing_field")
        assert content["draft"], "everybody would see it before it has files"
        release = self.double.create(tag, content["name"], content["body"], draft=True)
        release.target = content.get("target_commitish", release.target)
        return self.done(201, self.double.release_json(release))

    def publish(self, number: str) -> None:
        found = self.find(number)
        content = self.read_json()
        if content is None:
            return None
        release = known(found)
        kind = self.fault.kind if self.fault else ""
        self._meddle(release, kind)
        release.tag = content.get("tag_name", release.tag)
        release.title = content.get("name", release.title)
        release.prerelease = content.get("prerelease", release.prerelease)
        release.body = content.get("body", release.body)
        release.target = content.get("target_commitish", release.target)
        if release.immutable and content.get("draft"):
            return self.invalid("Release", "invalid")
        if content.get("draft"):
            release.draft = True
        if content.get("draft") is False and release.draft:
            if self.double.published(release.tag):
                return self.invalid("Release", "already_exists")
            self.double.publish(release, newest=content.get("make_latest") != "false")
        if kind == "mutable":
            release.immutable = False
        if kind == "retag-late":
            release.tag = EDITED
        told = self.double.release_json(release)
        return self.done(200, {**told, "immutable": False} if kind == "immutable-late" else told)

    def _meddle(self, release: StoredRelease, kind: str) -> None:
        """Change the release as another client would just before its publication, by the fault's kind."""
        if kind == "meddle":
            release.assets.popitem()
        if kind == "meddle-more":
            self.double.store(release, "somebody-elses.txt", b"not ours")
        if kind == "move":
            self.double.tags[release.tag] = MOVED
        if kind == "retag":
            release.tag = EDITED
        if kind == "edit":
            release.title, release.body, release.prerelease = EDITED, EDITED, True

    def assets(self, number: str) -> None:
        release = known(self.find(number))
        if release.draft and not self.authorized:
            raise NotFoundError
        self._meddle(release, self.fault.kind if self.fault else "")
        self.page([self.double.asset_json(release, item) for item in release.assets.values()])

    def asset(self, number: str) -> None:
        found = self.find_asset(number)
        if "octet-stream" not in self.headers.get("Accept", ""):
            return self.answer(200, self.double.asset_json(*found))
        if self.fault and self.fault.kind == "direct":
            return self.send_file(found[1].file)
        if self.fault:
            self.double.fail("blob", self.fault.kind, after=self.fault.after)
        return self.answer(302, None, {"Location": f"{self.double.storage.url}/blob/{number}"})

    def delete(self, number: str) -> None:
        release, asset = self.find_asset(number)
        if release.immutable:
            return self.answer(422, {"message": "Cannot delete asset from an immutable release"})
        del release.assets[asset.id]
        asset.file.unlink(missing_ok=True)
        return self.done(204)

    def latest(self, name: str) -> None:
        release = known(self.double.latest())
        target = f"{self.double.url}/{self.double.repository}/releases/download/{release.tag}/{name}"
        self.answer(302, None, {"Location": target})

    def expanded(self, tag: str) -> None:
        """Answer with the part of a release's page that a browser loads separately: links without hashes."""
        release = known(self.double.published(tag))
        folder = f"/{self.double.repository}/releases/download/{tag}"
        page = "".join(
            f'<li><a href="{folder}/{quote(one.name)}" rel="nofollow">{escape(one.name)}</a></li>'
            for one in release.assets.values()
        )
        self.answer(200, f'<div class="Box"><ul>{page}</ul></div>')

    def download(self, tag: str, name: str) -> None:
        assets = known(self.double.published(tag)).assets.values()
        there = (item for item in assets if (item.name, item.state) == (name, "uploaded"))
        self.answer(302, None, {"Location": f"{self.double.storage.url}/blob/{known(next(there, None)).id}"})


class StorageHandler(Handler):
    """The handler for uploads.github.com, and for the object store to which downloads are redirected."""

    routes: ClassVar[tuple[Route, ...]] = (
        Route("POST", rf"{REPO}/(?P<number>\d+)/assets", "upload", False),
        Route("GET", r"/blob/(?P<number>\d+)", "blob", True),
    )

    def upload(self, number: str) -> None:
        found = self.find(number)
        name = renamed(self.query.get("name", [""])[0])
        kind = self.fault.kind if self.fault else ""
        release = known(found)
        if release.immutable:
            return self.answer(422, {"message": "Cannot upload assets to an immutable release."})
        if any(item.name == name for item in release.assets.values()):
            return self.exists()
        part = self.double.root / f"incoming-{id(self)}"
        self.read_body(part, self.fault.after if self.fault and kind.startswith("cut") else None)
        if kind == "cut" or (not kind.startswith("cut") and self.left):
            part.unlink()
            return self.hang_up()
        return self._store(release, name, part, kind)

    def _store(self, release: StoredRelease, name: str, part: Path, kind: str) -> None:
        if kind in ("corrupt", "race-other"):
            part.write_bytes(b"\0" + part.read_bytes()[1:])
        broken = kind in ("starter", "cut-starter")
        with self.double.lock:  # of two simultaneous uploads with one name, only the first is stored
            if any(item.name == name for item in release.assets.values()):
                part.unlink()
                return self.exists()
            asset = self.double.store(release, name, part, state="starter" if broken else "uploaded")
        if kind == "no-digest":
            asset.digest = None
        reply = self.double.asset_json(release, asset)
        if kind == "cut-starter":
            return self.hang_up()
        if kind == "starter":
            return self.answer(502, {"message": "Bad Gateway"})
        if kind in ("race", "race-other"):
            return self.exists()
        if kind == "wrong-digest":
            reply["digest"] = "sha256:" + "0" * 64
        if kind == "late-digest":
            reply["digest"] = None
        if kind == "truncated":
            return self._half_an_answer(reply)
        return self.done(201, reply)

    def _half_an_answer(self, reply: dict[str, object]) -> None:
        data = json.dumps(reply).encode()
        self.send_response(201)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2])
        self.hang_up()

    def exists(self) -> None:
        self.invalid("ReleaseAsset", "already_exists", "name")

    def blob(self, number: str) -> None:
        self.authorized = True
        _, asset = self.find_asset(number)
        if "Authorization" in self.headers:
            return self.answer(400, {"message": "InvalidAuthenticationInfo"})
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start = int(match[1]) if match else 0
        if start >= asset.size:
            return self.answer(416, None, {"Content-Range": f"bytes */{asset.size}"})
        return self.send_file(asset.file, start)
