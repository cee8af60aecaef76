"""A TLS server whose certificate no client knows."""

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def make_certificate(folder: Path, name: str) -> Path:
    """Make a key and a self-signed certificate for 127.0.0.1 in ``folder``; return the certificate."""
    argv: list[str | Path] = [
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"),
        *("-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"),
        *("-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"),
    ]
    subprocess.run(argv, capture_output=True, check=True)
    return folder / f"{name}.pem"


@contextmanager
def unknown_tls_server(folder: Path) -> Iterator[int]:
    """Run a server that ends each connection after the handshake; yield its port on 127.0.0.1."""
    certificate = make_certificate(folder, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_serve, args=(server, context), daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def _serve(server: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        try:
            context.wrap_socket(connection, server_side=True).close()
        except OSError:
            connection.close()
