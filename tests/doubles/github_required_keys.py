"""Keys that GitHub's OpenAPI description requires in answers, and that no publisher reads."""

REJECTED = {"documentation_url": "https://docs.github.com/rest"}
"""Keys of a 422's body other than ``message`` and ``errors``."""
_WHEN = "2026-01-01T00:00:00Z"
_PAGES = (
    "avatar events followers following gists html organizations received_events repos starred subscriptions"
)


def of_release(url: str, *, draft: bool) -> dict[str, object]:
    """Return the keys of the release at ``url``; a draft has no source archives and publication time."""
    return {
        "node_id": "RE_double",
        "assets_url": f"{url}/assets",
        "tarball_url": None if draft else f"{url}/tarball",
        "zipball_url": None if draft else f"{url}/zipball",
        "author": _user(url),
        "created_at": _WHEN,
        "published_at": None if draft else _WHEN,
    }


def of_asset() -> dict[str, object]:
    """Return the keys of an asset, whose uploader is ``None`` as for a deleted account."""
    times = {"created_at": _WHEN, "updated_at": _WHEN}
    return {"node_id": "RA_double", "uploader": None, "download_count": 0, **times}


def of_annotation(url: str) -> dict[str, object]:
    """Return the keys of an annotated tag's object at ``url``."""
    tagger = {"date": _WHEN, "email": "octocat@github.com", "name": "octocat"}
    return {"node_id": "TAG_double", "tag": "", "url": url, "message": "", "tagger": tagger}


def _user(url: str) -> dict[str, object]:
    pages = {f"{page}_url": f"{url}/{page}" for page in _PAGES.split()}
    known = {"login": "octocat", "id": 1, "node_id": "U_double", "type": "User", "site_admin": False}
    return {**known, **pages, "url": url, "gravatar_id": ""}
