// Package api serves the bulk worker over HTTP: groups in as NDJSON of any length, their progress, results and congestion out.
//
// Reading order: Options and New in server.go, guard.go for who may do what, upload.go for how a stream of lines becomes jobs,
// view.go for how a group is shown. api/openapi-bulk.yaml describes the surface, and a test keeps it true.
package api
