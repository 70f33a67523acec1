// Package config is the gateway's configuration: one struct, read from flags,
// environment, file and defaults, checked as a whole.
package config

//go:generate go run ./gen ../..
