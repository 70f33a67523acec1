// Package config is the programs' configuration: one struct for each, read from
// flags, environment, file and defaults, checked as a whole.
package config

//go:generate go run ./gen ../..
