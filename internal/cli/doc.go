// Package cli is shared by the programs' command lines: exit codes, usage errors, flags that change the configuration, and the
// commands that check and print the configuration.
package cli
