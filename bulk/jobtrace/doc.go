// Package jobtrace traces jobs: a span for each submission, and one for each run of its jobs that follows it. The trace context of a
// submission is kept with its jobs, so that a handler continues the trace of the submitter, in whichever process and however late the job
// runs. Without a tracer nothing is recorded, and the submitter's own trace context reaches the handler. Names and attributes are the
// semantic conventions of OpenTelemetry for messaging; docs/tracing.md lists them.
package jobtrace
