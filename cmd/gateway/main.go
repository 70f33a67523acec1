package main

import (
	"os"
	_ "time/tzdata" // for eta.time_zone, also where the system has none

	"github.com/anteroom/anteroom/internal/cli"
)

// version is set by the release build: -ldflags "-X main.version=v1.2.3".
var version = ""

func main() {
	os.Exit(cli.Run(newRoot(os.Environ()), os.Args[1:], os.Stdout, os.Stderr))
}
