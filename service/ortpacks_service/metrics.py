"""The metrics that ``/metrics`` gives to Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import onnxruntime
import prometheus_client as prometheus
from ortpacks_runtime import Report
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ortpacks_service import VERSION

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The service's metrics."""

    def __init__(self, reports: Callable[[], Iterable[tuple[str, Report]]], queue: Callable[[], int]) -> None:
        """``reports`` returns the open models' reports by name, ``queue`` the number of texts that wait."""
        registry = self._registry = prometheus.CollectorRegistry()
        registry.register(_Providers(reports))
        prometheus.ProcessCollector(registry=registry)
        histogram = partial(prometheus.Histogram, buckets=_SECONDS, registry=registry)
        counter = partial(prometheus.Counter, registry=registry)
        self.seconds = histogram("syn_embedding_seconds", "Time from a request's arrival to its vectors")
        seconds = "Time from a request's head to its answer's end"
        self.request_seconds = histogram("syn_request_seconds", seconds, ("path",))
        self.total = counter("syn_embedding", "Texts that were embedded", ("provider",))
        self.requests = counter("syn_requests", "Requests by path and status", ("path", "status"))
        self.batch = histogram("syn_embedding_batch_size", "Texts that ran together", buckets=_BATCHES)
        waiting = prometheus.Gauge("syn_embedding_queue", "Texts that wait or run", registry=registry)
        waiting.set_function(queue)
        about = {"version": VERSION, "onnxruntime": onnxruntime.__version__}
        prometheus.Info("ortpacks_service_build", "Versions of the service", registry=registry).info(about)

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return prometheus.generate_latest(self._registry)


class _Providers(Collector):
    """Each open model's provider, read on every request, since a session may be reopened on the CPU."""

    def __init__(self, reports: Callable[[], Iterable[tuple[str, Report]]]) -> None:
        self._reports = reports

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """See ``Collector``."""
        used = GaugeMetricFamily("ortpacks_provider", "1 for those in use", labels=("model", "provider"))
        fallen = GaugeMetricFamily("ortpacks_fallback", "1 where the CPU stands in", labels=("model",))
        for name, report in self._reports():
            used.add_metric((name, report.provider), 1)
            fallen.add_metric((name,), int(report.fallback is not None))
        yield from (used, fallen)
