package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

func TestMutations_FollowTheCode(t *testing.T) {
	if len(mutations) < 30 {
		t.Errorf("%d mutations, want at least 30", len(mutations))
	}
	faults := map[string]bool{}
	for _, m := range mutations {
		if faults[m.fault] {
			t.Errorf("%q stands twice", m.fault)
		}
		faults[m.fault] = true
		text, err := os.ReadFile(filepath.Join("../..", m.file))
		if err != nil {
			t.Error(err)
			continue
		}
		if n := bytes.Count(text, []byte(m.old)); n != 1 || m.old == m.new {
			t.Errorf("%s: %s: the old snippet occurs %d times, want 1:\n%s", m.file, m.fault, n, m.old)
		}
		if !hasTest(t, filepath.Join("../..", m.pkg), m.tests) {
			t.Errorf("%s: %s: no test in %s matches %s", m.file, m.fault, m.pkg, m.tests)
		}
	}
}

var testName = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

func hasTest(t *testing.T, dir, pattern string) bool {
	t.Helper()
	want, err := regexp.Compile(pattern)
	if err != nil {
		t.Error(err)
		return false
	}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range testName.FindAllSubmatch(text, -1) {
			if want.Match(name[1]) {
				return true
			}
		}
	}
	return false
}
