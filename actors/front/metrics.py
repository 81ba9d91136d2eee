"""`GET /metrics` in the Prometheus text format; the library is loaded at the first request for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from roost.actors.front.services import Services

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Collector:
    def __init__(self, services: Services) -> None:
        self._services = services

    def collect(self) -> Iterator[Metric]:
        """Yield what the front knows without asking anybody."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        services = self._services
        connections = GaugeMetricFamily(
            "roost_connections", "Open client connections.", labels=["transport"]
        )
        for transport, count in services.connections.items():
            connections.add_metric([transport], count)
        yield connections
        yield CounterMetricFamily(
            "roost_requests", "Requests that were let in.", value=services.requests
        )
        gauges = (
            ("roost_attachments", "Clients attached to sessions.", len(services.attachments)),
            (
                "roost_followed_sessions",
                "Sessions that somebody follows.",
                services.fanout.followed,
            ),
            ("roost_ready", "Whether requests can be served.", int(services.ready)),
            ("roost_uptime_seconds", "Age of the daemon.", services.uptime_ms / 1000),
        )
        for name, text, value in gauges:
            yield GaugeMetricFamily(name, text, value=value)


def render_metrics(services: Services) -> bytes:
    """Return the metrics of this front."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(services))
    return generate_latest(registry)
