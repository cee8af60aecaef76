"""publish and release-status: the workshop's adapters around ``stages.publish``."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from builder.adapters.github import GitHub
from builder.adapters.github_http import GitHubHttp
from builder.adapters.partfile import part_file
from builder.app.proving import verifier
from builder.app.verbs import write_client
from builder.app.workshop import Workshop
from builder.core.release import ReleaseHost
from builder.core.variant import Project
from builder.errors import ToolMissingError
from builder.stages.publish import (
    Published,
    PublishOptions,
    PublishPorts,
    State,
    index_url,
    publish,
    release_status,
    release_tag,
)
from builder.stages.verify import verify

_TOKENS = ("GITHUB_TOKEN", "GH_TOKEN")
_PUBLIC_API = "api.github.com"


@dataclass(frozen=True, kw_only=True)
class Target:
    """Which repository on which server; ``None`` takes what is configured."""

    api: str | None = None
    repository: str | None = None


def publish_dist(shop: Workshop, options: PublishOptions, target: Target) -> None:
    """Make the client, prove every package again from its own bytes, then make the release."""
    project = aimed(shop, target)
    host = github(shop, project)
    ours = project.publish.repository == shop.env.get("GITHUB_REPOSITORY")
    commit = options.commit or (shop.env.get("GITHUB_SHA") if ours else None)
    done = publish_on(shop, project, host, replace(options, commit=commit))
    shop.reporter.say(f"{done.tag}: {done.state.value}{f' at {done.url}' if done.url else ''}")


def publish_on(shop: Workshop, project: Project, host: ReleaseHost, options: PublishOptions) -> Published:
    """Publish ``dist`` on any host. The client in it looks for the index where ``project`` publishes."""
    tag = release_tag(shop.dist, project, shop.archive(shop.reporter), options.tag)
    write_client(shop, index_url(project.publish, tag))
    return publish(shop.dist, project, _ports(shop, host), replace(options, tag=tag))


def tell_status(shop: Workshop, tag: str | None, target: Target) -> bool:
    """Show how the release stands against ``dist``; whether it is public and equal."""
    project = aimed(shop, target)
    tag = tag or release_tag(shop.dist, project, shop.archive(shop.reporter))
    found = release_status(shop.dist, tag, _ports(shop, github(shop, project)))
    shop.reporter.say(f"{tag}: {found.state.value}{f' at {found.url}' if found.url else ''}")
    return found.state is State.PUBLISHED


def github(shop: Workshop, project: Project) -> GitHub:
    """The releases of the project's repository."""
    http = GitHubHttp(
        api=project.publish.api,
        token=_token(shop, project.publish.api),
        reporter=shop.reporter,
        sleep=time.sleep,
        clock=time.time,
    )
    return GitHub(repository=project.publish.repository, http=http, reporter=shop.reporter)


def aimed(shop: Workshop, target: Target) -> Project:
    """The project, publishing to ``target``."""
    configured = shop.project.publish
    repository = target.repository or shop.env.get("GITHUB_REPOSITORY") or configured.repository
    publishing = replace(configured, api=target.api or configured.api, repository=repository)
    return replace(shop.project, publish=publishing)


def _token(shop: Workshop, api: str) -> str:
    """From the environment, else what ``gh`` is logged in with; empty where there is none."""
    found = next((shop.env[name] for name in _TOKENS if shop.env.get(name)), None)
    return found if found is not None else _token_of_gh(shop, api)


def _token_of_gh(shop: Workshop, api: str) -> str:
    """What ``gh`` keeps for the server, if it is logged in there; it knows GitHub's own by its web name."""
    server = urlsplit(api).hostname or ""
    host = "github.com" if server == _PUBLIC_API else server
    try:
        done = shop.runner.run(["gh", "auth", "token", "--hostname", host], check=False)
    except ToolMissingError:
        return ""
    return done.stdout.strip() if done.code == 0 else ""


def _ports(shop: Workshop, host: ReleaseHost) -> PublishPorts:
    return PublishPorts(
        host=host,
        archive=shop.archive(shop.reporter),
        checksums=shop.checksums,
        reporter=shop.reporter,
        verify=lambda package: _prove(shop, package),
        write=part_file,
        loader=shop.loader,
    )


def _prove(shop: Workshop, package: Path) -> None:
    """Re-read every byte of a package, without running anything."""
    verify(package, verifier(shop, shop.reporter, None))
