package main

import (
	"os"

	"github.com/anteroom/anteroom/internal/cli"
)

// version is set by the release build: -ldflags "-X main.version=v1.2.3".
var version = ""

func main() {
	os.Exit(cli.Run(newRoot(os.Environ()), os.Args[1:], os.Stdout, os.Stderr))
}
