package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/internal/config"
)

func TestGeneratedFilesAreCurrent(t *testing.T) {
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

func TestExampleLoadsAndIsTheDefaults(t *testing.T) {
	dir := t.TempDir()
	load := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(config.Options{File: file})
		if err != nil {
			t.Fatal(err)
		}
		printed, err := cfg.YAML()
		if err != nil {
			t.Fatal(err)
		}
		return string(printed)
	}
	least := "origins: [{id: shop, servers: [\"http://127.0.0.1:9000\"]}]\nrooms: [{id: sale, origin: shop}]\n"
	if got, want := load("example.yaml", example()), load("least.yaml", least); got != want {
		t.Errorf("the example differs from the defaults:\n%s\nwant\n%s", got, want)
	}
}

func TestReferenceNamesEverySetting(t *testing.T) {
	text := reference()
	for _, s := range config.Settings() {
		if !isSection(s) && !strings.Contains(text, "| `"+s.Path+"` |") {
			t.Errorf("docs/config.md does not name %s", s.Path)
		}
	}
}
