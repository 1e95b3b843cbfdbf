"""Traces: one for each task, a span for each attempt and each call in it.

The ids of a trace and of its spans are derived from the ids of the task, the step and the call
(`trace_context`). So the spans of an attempt after a crash, of another worker and of the end of the task
join the same trace, and nothing has to be stored. A task that was started with a `traceparent` belongs
to the caller's trace: the header is recorded with what started the task.

A span is made when it has ended (`spans`), and passed to a `SpanSink`. `otlp` is the only module that
imports OpenTelemetry, and only `bootstrap.open_telemetry` imports it, where the configuration has an
endpoint. Without one there is no sink, and nothing is computed. A sink never raises and never waits:
spans that cannot be sent are dropped, counted and logged now and then.

It may import `config` and `core`. What a span says of a step, a call or a task is decided above, in
`steps.attempt.spans` and `daemon.task_spans`.
"""
