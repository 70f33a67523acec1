// Package axe finds axe-core, whose accessibility rules the browser tests run. It is not kept in this repository.
package axe

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// Source returns the source of axe-core in the version that test/axe/package-lock.json pins: from test/axe/node_modules, which make
// installs, or else from npm by way of the user's cache directory.
var Source = sync.OnceValues(func() (string, error) {
	home, err := find()
	if err != nil {
		return "", err
	}
	script := filepath.Join("node_modules", "axe-core", "axe.min.js")
	lock, err := os.ReadFile(filepath.Join(home, "package-lock.json"))
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	sum := sha256.Sum256(lock)
	cache = filepath.Join(cache, "anteroom", "axe-"+hex.EncodeToString(sum[:8]))
	for _, dir := range []string{home, cache} {
		if source, err := os.ReadFile(filepath.Join(dir, script)); !errors.Is(err, fs.ErrNotExist) {
			return string(source), err
		}
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		b, err := os.ReadFile(filepath.Join(home, name))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(cache, name), b, 0o644); err != nil {
			return "", err
		}
	}
	install := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = cache
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the accessibility tests fetch axe-core with npm (apt-get install npm, brew install node): %w\n%s", err, out)
	}
	source, err := os.ReadFile(filepath.Join(cache, script))
	return string(source), err
})

// find returns test/axe of the repository around the working directory.
func find() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		home := filepath.Join(dir, "test", "axe")
		if _, err := os.Stat(filepath.Join(home, "package-lock.json")); err == nil {
			return home, nil
		}
		if filepath.Dir(dir) == dir {
			return "", errors.New("no test/axe in or above the working directory")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}
