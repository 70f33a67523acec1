// Package config defines the configuration of each program as a struct, loads it from flags, environment, file and defaults, and
// checks it as a whole.
package config

//go:generate go run ./gen ../..
