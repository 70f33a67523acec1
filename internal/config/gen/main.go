// Command gen writes docs/config.md and examples/gateway.yaml from the tags of
// the configuration. Its argument is the root of the repository.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// outputs are the generated files, relative to the root.
var outputs = map[string]func() string{
	"docs/config.md":        reference,
	"examples/gateway.yaml": example,
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen ROOT")
		os.Exit(2)
	}
	for name, text := range outputs {
		if err := write(filepath.Join(os.Args[1], name), text()); err != nil {
			fmt.Fprintln(os.Stderr, "gen:", err)
			os.Exit(1)
		}
	}
}

func write(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o644)
}
