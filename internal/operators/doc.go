// Package operators protects the ports that operators and backends use: it limits wrong tokens, and bounds how long a request or an
// answer may stand still.
package operators
