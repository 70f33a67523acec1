package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/internal/settings"
	"go.yaml.in/yaml/v3"
)

// FuzzFile checks that the loader never panics, that it always reports an unknown key at the top, and that a configuration that
// loads can be printed and loaded again.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		"", "listen: ':8080'", shop, shop + "rooms: [{id: sale, admission: {rate: 2.5, burst: 3}}]",
		"rooms: &a [*a]", "<<: {listen: ':1'}", "? [a]\n: b", "a: b\na: c", "---\n---\n", "!!binary x", "store: {url: 'redis://u:p@h'}",
		shop + "rooms: [{id: a, bypass: [{headers: {X-A: b}, ips: [10.0.0.0/8]}], paths: ['~^/x']}]", "nonsense: 1", "0x1: 2", "null: null",
		shop + "admin: {token: x}\ntokens: {keys: [{id: k, secret: 'aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF'}]}",
	} {
		f.Add([]byte(seed))
	}
	file := filepath.Join(f.TempDir(), "gateway.yaml")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := Load(Options{File: file})
		var problems *Problems
		if err != nil && !errors.As(err, &problems) {
			t.Fatalf("%T: %v", err, err)
		}
		var keys map[string]any
		if yaml.Unmarshal(data, &keys) == nil {
			known := slices.DeleteFunc(Settings(), func(s Setting) bool { return strings.Contains(s.Path, ".") })
			for key := range keys {
				if !slices.ContainsFunc(known, func(s Setting) bool { return s.Name == key }) && err == nil {
					t.Fatalf("the unknown key %q passed", key)
				}
			}
		}
		if err != nil {
			return
		}
		text, err := cfg.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := Load(Options{File: file})
		if err != nil {
			// Only a mask may keep the printed form from loading.
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !strings.Contains(line, "mask") {
					t.Fatalf("printed and read again: %s\n%s", line, text)
				}
			}
			return
		}
		if second, err := again.YAML(); err != nil || string(second) != string(text) {
			t.Fatalf("printed twice: %v\n%s\n%s", err, text, second)
		}
	})
}

// FuzzEnvironment checks that no variable makes the loader panic, and that a variable of neither a setting nor Kubernetes is
// always reported.
func FuzzEnvironment(f *testing.F) {
	f.Add("LISTEN", ":8080")
	f.Add("STORE__URL", "redis://h")
	f.Add("ROOMS__0__ID", "x")
	f.Add("PORT_80_TCP", "tcp://10.0.0.1:80")
	f.Add("TRUSTED_PROXIES", "10.0.0.0/8,x")
	f.Add("__", "__")
	f.Add("STORE.URL", "redis://h")
	file := filepath.Join(f.TempDir(), "gateway.yaml")
	if err := os.WriteFile(file, []byte(shop), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		full := "ANTEROOM_" + name
		_, err := Load(Options{File: file, Environ: []string{full + "=" + value}})
		// A = in the name ends it.
		full, value, _ = strings.Cut(full+"="+value, "=")
		known := slices.ContainsFunc(Settings(), func(s Setting) bool { return s.Variable() == full })
		if err == nil && !known && !settings.FromKubernetes(full, value) {
			t.Fatalf("the unknown variable %q passed", full)
		}
	})
}
