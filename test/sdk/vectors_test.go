package sdk

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

func TestSDKs_AgreeOnVectors(t *testing.T) {
	each(t, func(t *testing.T, l *language) {
		l.require(t)
		out, err := exec.Command("bash", "-c", l.vectors(t.TempDir())).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Logf("%s", out)
	})
}

// An SDK is one file that a reviewer reads before copying it. Comments, blank lines and imports do not count.
func TestSDKs_AreShort(t *testing.T) {
	const most = 250
	other := regexp.MustCompile(`^\s*($|//|\*|/\*|#|import |from \S+ import |"[a-z0-9/]+"$)`)
	for _, file := range []string{"go/anteroom.go", "node/anteroom.mjs", "python/anteroom.py", "php/anteroom.php", "java/Anteroom.java"} {
		text, err := os.ReadFile("../../sdk/" + file)
		if err != nil {
			t.Fatal(err)
		}
		lines := 0
		for line := range strings.Lines(string(text)) {
			if !other.MatchString(strings.TrimRight(line, "\n")) {
				lines++
			}
		}
		if lines > most || lines < 100 {
			t.Errorf("sdk/%s has %d lines of code; 100 to %d are expected", file, lines, most)
		}
	}
}
