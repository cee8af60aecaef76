"""The metrics that ``/metrics`` gives to Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ortpacks_runtime import Report
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The service's metrics."""

    def __init__(self, reports: Callable[[], Iterable[tuple[str, Report]]], queue: Callable[[], int]) -> None:
        """``reports`` returns the open models' reports by name, ``queue`` the number of texts that wait."""
        self._registry = CollectorRegistry()
        self._registry.register(_Providers(reports))
        self.seconds = Histogram(
            "syn_embedding_seconds",
            "Time from a request's arrival to its vectors",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.total = Counter(
            "syn_embedding", "Texts that were embedded", ("provider",), registry=self._registry
        )
        self.batch = Histogram(
            "syn_embedding_batch_size",
            "Texts that were computed at once",
            buckets=_BATCHES,
            registry=self._registry,
        )
        self.requests = Counter(
            "syn_requests", "Requests by path and status", ("path", "status"), registry=self._registry
        )
        Gauge("syn_embedding_queue", "Texts that wait or are computed", registry=self._registry).set_function(
            queue
        )

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class _Providers(Collector):
    """Each open model's provider, read on every request, since a session may be reopened on the CPU."""

    def __init__(self, reports: Callable[[], Iterable[tuple[str, Report]]]) -> None:
        self._reports = reports

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """See ``Collector``."""
        used = GaugeMetricFamily(
            "ortpacks_provider", "1 for the provider of a model", labels=("model", "provider")
        )
        fallen = GaugeMetricFamily(
            "ortpacks_fallback", "1 where a provider was refused and the CPU is used", labels=("model",)
        )
        for name, report in self._reports():
            used.add_metric((name, report.provider), 1)
            fallen.add_metric((name,), int(report.fallback is not None))
        yield from (used, fallen)
