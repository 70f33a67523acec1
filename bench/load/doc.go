// Package load is the load generator: it sends visitors to a gateway through the visitor API and judges the results.
package load
