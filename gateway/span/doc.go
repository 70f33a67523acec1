// Package span traces requests and tickets: a server span for each traced request with its decision, a client span for each batch of the
// store that it waited for and for its exchange with the origin, and the trace of a ticket from its join to its claim. Names and attributes
// are the semantic conventions of OpenTelemetry for HTTP and databases; docs/tracing.md lists them.
package span
