// Package integrations tests the proxies that can be run beside the gateway, with the suites of package suite.
package integrations

import (
	"flag"
	"os"
	"os/exec"
	"testing"

	"github.com/anteroom/anteroom/internal/redistest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() { // every test here starts programs
		if err := flag.Set("test.skip", "."); err != nil {
			panic(err)
		}
	}
	redistest.MainNoLeaks(m)
}

// installed returns the path of a program that is installed, also outside of a user's PATH.
func installed(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		path = "/usr/sbin/" + name
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%s is missing; tools/need.sh %s installs it", name, name)
		}
	}
	return path
}
