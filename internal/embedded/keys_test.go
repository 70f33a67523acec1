package embedded

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKey_IsMadeOnce(t *testing.T) {
	t.Parallel()
	dir := storeDir(t)
	id, secret, err := LoadOrCreateKey(dir)
	if err != nil || !keyID.MatchString(id) || len(secret) != 32 {
		t.Fatalf("%q, %d bytes, %v", id, len(secret), err)
	}
	info, err := os.Stat(filepath.Join(dir, "keys.json"))
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	again, same, err := LoadOrCreateKey(dir)
	if err != nil || again != id || !bytes.Equal(same, secret) {
		t.Fatalf("another key: %q, %v", again, err)
	}
	other, different, err := LoadOrCreateKey(storeDir(t))
	if err != nil || other == id || bytes.Equal(different, secret) {
		t.Fatalf("the same key for another store: %q, %v", other, err)
	}
	start(t, dir) // the directory serves for the server too
}

func TestKey_RacingProgramsGetTheSame(t *testing.T) {
	t.Parallel()
	dir := storeDir(t)
	var racers []*helper
	for range 6 {
		racers = append(racers, program(t, dir, "EMBEDDED_TEST_WHAT=key"))
	}
	var lines []string
	for _, r := range racers {
		line, err := r.out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	id, secret, err := LoadOrCreateKey(dir)
	want := fmt.Sprintf("%s %x %v\n", id, secret, err)
	for _, line := range lines {
		if line != want || err != nil {
			t.Fatalf("one got %q, another %q", line, want)
		}
	}
}

func TestKey_RefusesUnusableFiles(t *testing.T) {
	t.Parallel()
	good := base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))
	for _, row := range []struct {
		name, text string
		mode       os.FileMode
		want       string
	}{
		{"open to others", `{"id":"k1","alg":"HS256","secret":"` + good + `"}`, 0o640, "chmod 600"},
		{"empty", "", 0o600, "is not the JSON"},
		{"cut off", `{"id":"k1","alg":"HS256","secret":"` + good, 0o600, "is not the JSON"},
		{"another field", `{"id":"k1","alg":"HS256","secret":"` + good + `","x":1}`, 0o600, "is not the JSON"},
		{"two of them", `{"id":"k1","alg":"HS256","secret":"` + good + `"}{}`, 0o600, "behind its JSON"},
		{"no id", `{"alg":"HS256","secret":"` + good + `"}`, 0o600, `the id ""`},
		{"a path as id", `{"id":"../k","alg":"HS256","secret":"` + good + `"}`, 0o600, `the id "../k"`},
		{"another alg", `{"id":"k1","alg":"none","secret":"` + good + `"}`, 0o600, `the alg "none"`},
		{"not base64url", `{"id":"k1","alg":"HS256","secret":"%%"}`, 0o600, "not base64url"},
		{"short", `{"id":"k1","alg":"HS256","secret":"c2hvcnQ"}`, 0o600, "5 bytes; 32 are needed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := storeDir(t)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "keys.json")
			if err := os.WriteFile(path, []byte(row.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, row.mode); err != nil {
				t.Fatal(err)
			}
			_, _, err := LoadOrCreateKey(dir)
			if err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), good) {
				t.Fatalf("got %v, want %q and the path, not the secret", err, row.want)
			}
			if text, err := os.ReadFile(path); err != nil || string(text) != row.text {
				t.Fatalf("the file was changed: %q, %v", text, err)
			}
		})
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add([]byte(`{"id":"k1","alg":"HS256","secret":"` + base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)) + `"}`))
	f.Add([]byte(`{"id":"k1"}`))
	f.Add([]byte(`[]`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		id, secret, err := parseKey(text)
		if err == nil && (!keyID.MatchString(id) || len(secret) < secretBytes) {
			t.Fatalf("accepted %q, %d bytes", id, len(secret))
		}
	})
}
