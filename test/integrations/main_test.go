// Package integrations runs the suites of package suite against each proxy.
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

// installed returns the path of an installed program, also if it is only in /usr/sbin.
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
