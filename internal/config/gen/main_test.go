package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/internal/config"
)

func TestOutputs_AreCurrent(t *testing.T) {
	for name, text := range outputs {
		have, err := os.ReadFile(filepath.Join("..", "..", "..", name))
		if err != nil {
			t.Error(err)
			continue
		}
		if string(have) != text() {
			t.Errorf("%s is out of date; run: go generate ./internal/config", name)
		}
	}
}

// printer is a configuration that has been loaded.
type printer interface{ YAML() ([]byte, error) }

func loadGateway(file string) (printer, error) { return config.Load(config.Options{File: file}) }
func loadBulk(file string) (printer, error)    { return config.LoadBulk(config.BulkOptions{File: file}) }

func TestExample_LoadsAsTheDefaults(t *testing.T) {
	for _, row := range []struct {
		name    string
		load    func(file string) (printer, error)
		example string
		least   string
	}{
		{"gateway", loadGateway, gateway.example(),
			"origins: [{id: shop, servers: [\"http://127.0.0.1:9000\"]}]\nrooms: [{id: sale, origin: shop}]\n"},
		{"bulkworker", loadBulk, bulkworker.example(), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			printed := func(name, text string) string {
				t.Helper()
				file := filepath.Join(dir, name)
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				cfg, err := row.load(file)
				if err != nil {
					t.Fatal(err)
				}
				printed, err := cfg.YAML()
				if err != nil {
					t.Fatal(err)
				}
				return string(printed)
			}
			if got, want := printed("example.yaml", row.example), printed("least.yaml", row.least); got != want {
				t.Errorf("the example differs from the defaults:\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestReference_NamesEverySetting(t *testing.T) {
	for name, p := range map[string]*program{"docs/config.md": gateway, "docs/bulk-config.md": bulkworker} {
		text := p.reference()
		for _, s := range p.settings {
			if !isSection(s) && !strings.Contains(text, "| `"+s.Path+"` |") {
				t.Errorf("%s does not name %s", name, s.Path)
			}
		}
	}
}
