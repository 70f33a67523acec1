package embedded

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestPrepareDir_RefusesForeignDirectories(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		make func(t *testing.T, base string) string
		want string // of the error
	}{
		{"a new one, with those above", func(_ *testing.T, base string) string { return filepath.Join(base, "a", "b") }, ""},
		{"an empty one, open to others", func(t *testing.T, base string) string { return mkdir(t, base, 0o755) }, ""},
		{"one of ours, opened since", func(t *testing.T, base string) string {
			d := mkdir(t, base, 0o755)
			write(t, filepath.Join(d, usersFile), 0o600)
			write(t, filepath.Join(d, "keys.json"), 0o600)
			return d
		}, ""},
		{"a closed one with other files", func(t *testing.T, base string) string {
			d := mkdir(t, base, 0o700)
			write(t, filepath.Join(d, "x"), 0o644)
			return d
		}, ""},
		{"an open one with other files", func(t *testing.T, base string) string {
			d := mkdir(t, base, 0o755)
			write(t, filepath.Join(d, "x"), 0o644)
			return d
		}, "holds other files; name a directory of its own, or chmod 700"},
		{"a file", func(t *testing.T, base string) string {
			write(t, filepath.Join(base, "f"), 0o644)
			return filepath.Join(base, "f")
		}, "cannot be made"},
		{"under a file", func(t *testing.T, base string) string {
			write(t, filepath.Join(base, "f"), 0o644)
			return filepath.Join(base, "f", "d")
		}, "name a directory that this user may write to"},
		{"none", func(*testing.T, string) string { return "" }, "store.dir is empty"},
		{"one that may not be written to", func(t *testing.T, base string) string {
			if os.Getuid() == 0 {
				return "/proc/self" // root may write to anything else
			}
			return mkdir(t, base, 0o500)
		}, "store.dir "},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := prepareDir(row.make(t, t.TempDir()))
			if row.want != "" {
				if err == nil || !strings.Contains(err.Error(), row.want) {
					t.Fatalf("got %v, want %q", err, row.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(got); err != nil || info.Mode().Perm() != 0o700 || !filepath.IsAbs(got) {
				t.Fatalf("%s: %v, %v", got, info.Mode(), err)
			}
		})
	}
}

func TestPrepareDir_PutsTheSocketElsewhereForALongPath(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(storeDir(t), strings.Repeat("long", 30), "with 'quotes\" and ü")
	first, _ := start(t, dir)
	second, _ := start(t, dir)
	if first.engine.socket != second.engine.socket || strings.HasPrefix(first.engine.socket, dir) {
		t.Fatalf("%s and %s", first.engine.socket, second.engine.socket)
	}
	own := filepath.Dir(first.engine.socket)
	if info, err := os.Stat(own); err != nil || info.Mode() != os.ModeDir|0o700 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	if err := client(t, second).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	closeServer(t, first)
	closeServer(t, second)
	if _, err := os.Stat(own); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the socket's directory is left: %v", err)
	}
}

func TestPrepareDir_RefusesForeignSocketDirectories(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	good := mkdir(t, base, 0o700)
	link := filepath.Join(base, "link")
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(base, "file")
	write(t, file, 0o700)
	open := filepath.Join(base, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	for path, ok := range map[string]bool{good: true, filepath.Join(base, "new"): true, link: false, file: false, open: false} {
		if err := privateDir(path); (err == nil) != ok {
			t.Errorf("%s: %v, to be taken: %t", path, err, ok)
		}
	}
}

func mkdir(t *testing.T, base string, mode os.FileMode) string {
	t.Helper()
	d := filepath.Join(base, "d")
	if err := os.Mkdir(d, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(d, mode); err != nil {
		t.Fatal(err)
	}
	return d
}

func write(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, nil, mode); err != nil {
		t.Fatal(err)
	}
}
