// Package config defines the configuration of each program as a struct, loads it from flags, environment, file and defaults, and
// checks it as a whole.
//
// config.go and bulk.go have the structs, whose tags package settings reads; load.go and bulk_load.go load them; validate*.go and
// bulk_validate.go find mistakes, warnings*.go what is usually one; effective.go, keys.go, plan.go and quota.go have values that follow
// from several settings. gen writes the reference, the example files and the chart's schema.
package config

//go:generate go run ./gen ../..
