// Package ophttp is the HTTP that the ports of operators and backends share: bearer tokens, problem responses (RFC 9457), strict JSON
// bodies, deadlines for bodies and responses that stop moving, security headers, health probes and metrics.
package ophttp
