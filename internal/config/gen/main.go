// Command gen writes each program's reference (docs/config.md and
// docs/bulk-config.md) and example (examples/gateway.yaml and bulkworker.yaml)
// from the tags of its configuration, and the schema of the Helm chart's values.
// Its argument is the root of the repository.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/anteroom/anteroom/internal/config"
)

// program is a program whose configuration is documented.
type program struct {
	settings     []config.Setting
	introduction string // of the reference
	head         string // of the example
	rateUnit     string // of rates without a unit
	// shown are the values of the example for settings that a working file cannot
	// leave empty.
	shown map[string]string
	// commented are lists whose element is shown as a comment, because an element
	// has an effect even with its defaults.
	commented map[string]bool
	// chartSets are the settings that the Helm chart writes itself.
	chartSets []string
}

// outputs are the generated files, relative to the root.
var outputs = map[string]func() string{
	"docs/config.md":           gateway.reference,
	"docs/bulk-config.md":      bulkworker.reference,
	"examples/gateway.yaml":    gateway.example,
	"examples/bulkworker.yaml": bulkworker.example,

	"deploy/helm/anteroom/values.schema.json": valuesSchema,
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
