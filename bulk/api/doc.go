// Package api serves the bulk worker over HTTP: groups are submitted as NDJSON of any length; progress, results and
// congestion can be read.
//
// Reading order: Options and New in server.go, guard.go for authorization, upload.go for how lines become jobs,
// view.go for how a group is shown. api/openapi-bulk.yaml describes the API, and a test compares the two.
package api
