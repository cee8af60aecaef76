"""Program that opens a model on this machine's GPU and prints the provider of each node:
``LIBRARY MODEL``."""

import json
import sys
from pathlib import Path

from builder.formats.session_log import Placement
from builder.prove.virtualcard.worker import LoggedApi, Session, SessionSettings


def main(library: str, model: str) -> None:
    """Print a JSON object: the CUDA provider's refusal, and the nodes as ORT's log names them."""
    placement = Placement()
    with LoggedApi(Path(library), log=placement.add_message) as api:
        session = Session(api, Path(model), SessionSettings(verbose=True))
        said = {"refusal": session.refusal, "nodes": placement.nodes_by_kind()}
        session.close()
    print(json.dumps(said))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
