// Package chart tests deploy/helm/anteroom: it renders the chart with helm's own
// engine, decodes every object as the API server would, and gives what comes out
// to the programs. It is a module of its own, because helm is large.
package chart
