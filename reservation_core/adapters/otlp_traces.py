"""Traces sent by OTLP over HTTP, in batches and by a thread of their own.

Loaded only where traces are on: it needs the extra `traces`. What the exporter itself reads from the standard variables
(`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_CERTIFICATE` …) applies, too.
"""

import asyncio
import threading
from datetime import datetime

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from reservation_core.domain.calendar import to_micros
from reservation_core.ports.traces import Span, trace_id_of

_SEND_EVERY_MS = 1000
_LONGEST_EXPORT_S = 5
_LONGEST_CLOSE_S = 3
_SCOPE = InstrumentationScope("gpu-dev-server")

_log = structlog.get_logger(__name__)


class OtlpTraces:
    """Spans of this process, on their way to a collector at `url` (with its path, `/v1/traces`)."""

    def __init__(self, url: str, service: str) -> None:
        self._ids = RandomIdGenerator()
        self._resource = Resource.create({"service.name": service})
        self._sender = BatchSpanProcessor(
            OTLPSpanExporter(endpoint=url, timeout=_LONGEST_EXPORT_S), schedule_delay_millis=_SEND_EVERY_MS
        )

    def begin(self) -> str:
        """See `ports.traces`."""
        return f"00-{self._ids.generate_trace_id():032x}-{self._ids.generate_span_id():016x}-01"

    def add_root(self, span: Span) -> None:
        """See `ports.traces`."""
        self._send(span, _context_of(span.trace), None)

    def add(self, span: Span) -> None:
        """See `ports.traces`."""
        root = _context_of(span.trace)
        context = SpanContext(root.trace_id, self._ids.generate_span_id(), False, root.trace_flags)
        self._send(span, context, root)

    def _send(self, span: Span, context: SpanContext, parent: SpanContext | None) -> None:
        self._sender.on_end(
            ReadableSpan(
                name=span.name,
                context=context,
                parent=parent,
                resource=self._resource,
                attributes={"gpu_dev.job": span.job, **span.attributes},
                kind=SpanKind.SERVER if parent is None else SpanKind.INTERNAL,
                status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
                start_time=_nanoseconds(span.begun),
                end_time=max(_nanoseconds(span.begun), _nanoseconds(span.ended)),
                instrumentation_scope=_SCOPE,
            )
        )
        _log.info("traced", span=span.name, job=span.job, trace_id=trace_id_of(span.trace), error=span.error)

    async def close(self) -> None:
        """See `ports.traces`."""
        # It waits for its last batch; a collector that hangs must not hold up the end of the process.
        sending = threading.Thread(target=self._sender.shutdown, name="last traces", daemon=True)
        sending.start()
        await asyncio.to_thread(sending.join, _LONGEST_CLOSE_S)


def _context_of(trace: str) -> SpanContext:
    _, trace_id, span_id, flags = trace.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)))


def _nanoseconds(at: datetime) -> int:
    return to_micros(at) * 1000
