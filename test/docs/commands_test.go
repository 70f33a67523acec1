package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	command  = regexp.MustCompile("go test ([^\n`]*)")
	selector = regexp.MustCompile(`-(run|bench)[ =](?:'([^']*)'|(\S+))`)
	function = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example|Benchmark)\w*)\(`)
)

// TestCommands_RunTests checks that each go test command of a Markdown file selects a test or benchmark in each of its packages: a
// command that selects none succeeds and proves nothing.
func TestCommands_RunTests(t *testing.T) {
	checked := 0
	for _, page := range pages(t) {
		for _, m := range command.FindAllStringSubmatch(read(t, page), -1) {
			arguments, _, _ := strings.Cut(m[1], "  #")
			for _, s := range selector.FindAllStringSubmatch(arguments, -1) {
				pattern := strings.ReplaceAll(s[2]+s[3], `\|`, "|") // escaped in a table
				if pattern == "^$" || pattern == "X" || strings.Contains(pattern, "<") {
					continue // no test, or a placeholder
				}
				wanted, err := regexp.Compile(strings.Split(pattern, "/")[0])
				if err != nil {
					t.Errorf("%s: go test %s: %v", page, arguments, err)
					continue
				}
				for _, pkg := range packages(arguments) {
					checked++
					if !selects(t, pkg, s[1] == "bench", wanted) {
						t.Errorf("%s: go test %s: no function of %s matches -%s %s", page, arguments, pkg, s[1], pattern)
					}
				}
			}
		}
	}
	if checked < 10 {
		t.Errorf("found %d selections; want 10 or more", checked)
	}
}

// packages returns the packages of a go test command.
func packages(arguments string) (list []string) {
	for _, word := range strings.Fields(arguments) {
		if strings.HasPrefix(word, "./") && !strings.HasSuffix(word, "...") {
			list = append(list, word)
		}
	}
	return list
}

// selects reports whether a test, or a benchmark, of a package matches.
func selects(t *testing.T, pkg string, benchmark bool, wanted *regexp.Regexp) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range function.FindAllStringSubmatch(string(text), -1) {
			if strings.HasPrefix(m[1], "Benchmark") == benchmark && wanted.MatchString(m[1]) {
				return true
			}
		}
	}
	return false
}
