package tracing

import (
	"context"
	"encoding/hex"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// The header fields of a W3C trace context.
const (
	ParentField = "traceparent"
	StateField  = "tracestate"
)

// parentLength is the length of the traceparent of version 00.
const parentLength = 55

// knownFlags are those that are passed on.
const knownFlags = trace.FlagsSampled | trace.FlagsRandom

var w3c propagation.TraceContext

// pair has the two fields to read.
type pair struct{ parent, state string }

func (p *pair) Get(key string) string {
	switch key {
	case ParentField:
		return p.parent
	case StateField:
		return p.state
	}
	return ""
}

func (*pair) Set(string, string) {}

func (p *pair) Keys() []string { return []string{ParentField, StateField} }

// Parse returns the span context of a traceparent and a tracestate. ok is false where the traceparent is missing or malformed; a malformed
// tracestate is ignored, as the specification asks, and that of a trace that is not sampled is not read.
func Parse[T ~string | ~[]byte](parent, state T) (sc trace.SpanContext, ok bool) {
	if len(parent) < parentLength {
		return sc, false
	}
	if sc, ok = unsampled(parent); ok {
		return sc, true
	}
	sc = trace.SpanContextFromContext(w3c.Extract(context.Background(), &pair{string(parent), string(state)}))
	return sc, sc.IsValid()
}

// unsampled returns the span context of a traceparent of version 00 that is not sampled. Most are, so they cost no allocation.
func unsampled[T ~string | ~[]byte](parent T) (sc trace.SpanContext, ok bool) {
	if len(parent) != parentLength || string(parent[:3]) != "00-" || parent[35] != '-' || string(parent[52:]) != "-00" {
		return sc, false
	}
	c := trace.SpanContextConfig{Remote: true}
	if !decode(c.TraceID[:], parent[3:35]) || !decode(c.SpanID[:], parent[36:52]) {
		return sc, false
	}
	sc = trace.NewSpanContext(c)
	return sc, sc.IsValid()
}

// decode reads hexadecimal digits, which have to be in lower case.
func decode[T ~string | ~[]byte](to []byte, digits T) bool {
	for i := range to {
		high, low := digit(digits[2*i]), digit(digits[2*i+1])
		if high|low > 15 {
			return false
		}
		to[i] = high<<4 | low
	}
	return true
}

func digit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

// Format returns the traceparent and the tracestate of a span context; both are empty if it is not valid.
func Format(sc trace.SpanContext) (parent, state string) {
	if !sc.IsValid() {
		return "", ""
	}
	id, span := sc.TraceID(), sc.SpanID()
	b := make([]byte, 0, parentLength)
	b = append(hex.AppendEncode(append(b, "00-"...), id[:]), '-')
	b = append(hex.AppendEncode(b, span[:]), '-')
	b = hex.AppendEncode(b, []byte{byte(sc.TraceFlags() & knownFlags)})
	return string(b), sc.TraceState().String()
}
