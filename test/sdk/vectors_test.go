package sdk

import (
	"os"
	"os/exec"
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

// An SDK is one file that a reviewer reads before copying it.
func TestSDKs_AreShort(t *testing.T) {
	const most = 250
	for _, file := range []string{"go/anteroom.go", "node/anteroom.mjs", "python/anteroom.py", "php/anteroom.php", "java/Anteroom.java"} {
		text, err := os.ReadFile("../../sdk/" + file)
		if err != nil {
			t.Fatal(err)
		}
		lines := 0
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if line != "" && !strings.HasPrefix(line, "//") && !strings.HasPrefix(line, "*") && !strings.HasPrefix(line, "/*") {
				lines++
			}
		}
		if lines > most {
			t.Errorf("sdk/%s has %d lines of code, at most %d are allowed", file, lines, most)
		}
	}
}
