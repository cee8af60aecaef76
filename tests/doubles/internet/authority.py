"""An authority of its own, and one certificate of it for all hosts."""

import os
import ssl
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Authority:
    """The files of an authority."""

    certificate: Path
    server: Path
    """The key and the certificate of the hosts."""
    bundle: Path
    """The certificates that this machine trusts, and the authority's."""

    def environment(self) -> dict[str, str]:
        """Return the variables with which OpenSSL, requests, curl, git and pip trust the authority too."""
        names = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT")
        return dict.fromkeys(names, str(self.bundle))

    def context(self) -> ssl.SSLContext:
        """Return the context of a server that has the hosts' certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server)
        return context


def make_authority(folder: Path, hosts: Iterable[str]) -> Authority:
    """Make an authority and a certificate for ``hosts`` in ``folder``, valid for two days."""
    folder.mkdir(parents=True)
    names = ",".join(f"DNS:{host}" for host in sorted(hosts))
    key, authority, made = folder / "authority.key", folder / "authority.pem", folder / "hosts.pem"
    new = ("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-x509")
    root = ("-subj", "/CN=authority of the double", "-addext", "keyUsage=critical,keyCertSign")
    _run(*new, *root, "-keyout", key, "-out", authority)
    leaf = ("-subj", "/CN=hosts of the double", "-addext", f"subjectAltName={names}")
    signed = ("-addext", "basicConstraints=critical,CA:FALSE", "-CA", authority, "-CAkey", key)
    _run(*new, *leaf, *signed, "-keyout", folder / "hosts.key", "-out", made)
    server = folder / "server.pem"
    server.write_bytes((folder / "hosts.key").read_bytes() + made.read_bytes())
    known = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
    bundle = folder / "bundle.pem"
    trusted = Path(known).read_bytes() if known else b""
    bundle.write_bytes(trusted + b"\n" + authority.read_bytes())
    return Authority(authority, server, bundle)


def _run(*argv: str | Path) -> None:
    subprocess.run(argv, capture_output=True, check=True)
