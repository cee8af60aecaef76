"""Runner of Prism, on a free port of 127.0.0.1."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.referees.install import Referees
from tests.support.cache_servers import Server
from tests.support.containers import free_port


@contextmanager
def prism(referees: Referees, description: Path) -> Iterator[str]:
    """Run Prism inside the block and yield its URL.

    Prism answers with the description's examples, and with 4xx to a request that does not fit the
    description. The option ``--errors`` is not used, as GitHub's example of a repository does not fit
    GitHub's own schema.
    """
    port = free_port()
    words = [str(referees.prism), "mock", "--host=127.0.0.1", f"--port={port}", str(description)]
    server = Server([referees.node, *words], port)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
