"""The service's metrics: requests, seconds per stage, batches, documents; no content."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class Metrics:
    """Counters of one service, in its own registry: a process may run several services."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("vcc_requests", "Requests", ["route", "method", "code"], registry=self.registry)
        self.seconds = Histogram(
            "vcc_request_seconds", "Seconds of a request", ["route"], buckets=BUCKETS, registry=self.registry
        )
        self.stages = Histogram(
            "vcc_stage_seconds", "Seconds of a stage", ["stage"], buckets=BUCKETS, registry=self.registry
        )
        self.batch = Histogram(
            "vcc_batch_questions", "Questions per batch", buckets=(1, 2, 4, 8, 16, 32, 64), registry=self.registry
        )
        self.at_once = Gauge("vcc_requests_at_once", "Concurrent requests", registry=self.registry)
        self.documents = Gauge("vcc_documents", "Documents", ["state"], registry=self.registry)
        self.kept = Gauge("vcc_kept_bytes", "Bytes in the folder", registry=self.registry)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        with self.stages.labels(name).time():
            yield

    def text(self) -> bytes:
        return generate_latest(self.registry)
