// Package cli is what the programs' command lines have in common: exit codes,
// mistakes, the flags that shape a configuration, and the commands that check and
// print it.
package cli
