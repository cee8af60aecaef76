"""Tables of the faults of a host to which a release is published."""

from dataclasses import dataclass
from itertools import product

from tests.support.factories.publishing import ATTEMPTS

TIMES = (1, ATTEMPTS)
"""Numbers of repetitions: one, which a run survives, and ``ATTEMPTS``, after which the next run continues."""


@dataclass(frozen=True, kw_only=True)
class HostFault:
    """A fault, the request at which it comes, and the host's earlier contents."""

    route: str
    kind: str
    times: int = 1
    skip: int = 0
    after: int = 0
    before: str = "nothing"

    def __str__(self) -> str:
        return f"{self.before}-{self.route}-{self.kind}-{self.skip}+{self.after}x{self.times}"


def host_faults(
    routes: str, kinds: str, *, once: tuple[str, ...], before: str = "nothing", skips: tuple[int, ...] = (0,)
) -> list[HostFault]:
    """Return a fault of each kind at each route, after ``skips`` requests; those of ``once`` come once."""
    return [
        HostFault(route=route, kind=kind, times=times, skip=skip, before=before)
        for route, kind, skip, times in product(routes.split(), kinds.split(), skips, TIMES)
        if times == 1 or kind not in once
    ]
