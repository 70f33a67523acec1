package lua

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestScripts_PassLuacheck: no script, its libraries included, shadows a variable (luacheck 4xx), uses a global that Redis lacks or
// reads a value that is never set. The test is skipped without luacheck, which `make lint` installs.
func TestScripts_PassLuacheck(t *testing.T) {
	luacheck, err := exec.LookPath("luacheck")
	if err != nil {
		t.Skip("luacheck is not installed")
	}
	set, dir := MustLoad(), t.TempDir()
	args := []string{"--std", "lua51", "--globals", "redis", "KEYS", "ARGV", "cmsgpack", "cjson", "struct", "bit",
		"--no-unused", "--no-max-line-length", "--no-color", "--codes", "--formatter", "plain"} // no script uses all of its libraries
	for _, name := range set.Names() {
		file := filepath.Join(dir, name+".lua")
		if err := os.WriteFile(file, []byte(set.Script(name).Source), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, file)
	}
	out, err := exec.CommandContext(t.Context(), luacheck, args...).CombinedOutput()
	if err == nil {
		return
	}
	reported := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if m := regexp.MustCompile(`([a-z_]+)\.lua:(\d+):\d+: (.*)$`).FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[2])
			file, at := set.Script(m[1]).locate(n)
			line = file + ":" + strconv.Itoa(at) + ": " + regexp.MustCompile(` on line \d+.*`).ReplaceAllString(m[3], "")
		}
		if !reported[line] {
			reported[line] = true
			t.Error(line)
		}
	}
}
