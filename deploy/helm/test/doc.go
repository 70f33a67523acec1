// Package chart tests deploy/helm/anteroom: it renders the chart with helm's own
// engine, decodes every object as the API server would, and passes the
// configuration to the programs. It is a separate module, because helm is large.
package chart
