package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// A mutation is one deliberate fault.
type mutation struct {
	fault    string // what is wrong with the program, in a few words
	file     string // of the source, from the root of the repository
	old, new string // old occurs in file exactly once
	pkg      string // of the tests, such as ./token
	tests    string // a pattern for go test -run; one test that it selects must fail
}

// testTimeout bounds the tests of one mutation; a fault may make them wait for ever, which counts as noticed.
const testTimeout = 3 * time.Minute

func main() {
	run := flag.String("run", "", "apply only the mutations whose file or fault matches this regular expression")
	jobs := flag.Int("jobs", 2, "apply so many mutations at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := apply(ctx, *run, *jobs); err != nil {
		fmt.Fprintln(os.Stderr, "mutations:", err)
		os.Exit(1)
	}
}

func apply(ctx context.Context, pattern string, jobs int) error {
	selected, err := regexp.Compile(pattern)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if jobs < 1 {
		return fmt.Errorf("-jobs is %d; give at least 1", jobs)
	}
	root, err := repository()
	if err != nil {
		return err
	}
	var (
		all    sync.WaitGroup
		mu     sync.Mutex
		missed []string
		count  int
	)
	trees := make(chan string, jobs)
	for range jobs {
		tree, err := copyTree(root)
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(tree) }()
		trees <- tree
	}
	for _, m := range mutations {
		if !selected.MatchString(m.file) && !selected.MatchString(m.fault) {
			continue
		}
		count++
		tree := <-trees
		all.Go(func() {
			defer func() { trees <- tree }()
			verdict := m.try(ctx, tree)
			mu.Lock()
			defer mu.Unlock()
			if verdict != "" {
				missed = append(missed, m.fault)
				fmt.Printf("MISSED   %s: %s\n         %s\n", m.file, m.fault, verdict)
				return
			}
			fmt.Printf("noticed  %s: %s\n", m.file, m.fault)
		})
	}
	all.Wait()
	if len(missed) > 0 {
		return fmt.Errorf("%d of %d faults were not noticed", len(missed), count)
	}
	fmt.Printf("%d of %d faults were noticed\n", count, count)
	return ctx.Err()
}

// try applies the mutation in a copy of the repository, takes it back, and returns why no test noticed it, or "".
func (m *mutation) try(ctx context.Context, tree string) string {
	source := filepath.Join(tree, m.file)
	text, err := os.ReadFile(source)
	if err != nil {
		return err.Error()
	}
	if n := bytes.Count(text, []byte(m.old)); n != 1 {
		return fmt.Sprintf("the old snippet occurs %d times", n)
	}
	if out, err := m.test(ctx, tree); err != nil {
		return "the tests fail without the fault: " + out
	}
	if err := os.WriteFile(source, bytes.Replace(text, []byte(m.old), []byte(m.new), 1), 0o600); err != nil {
		return err.Error()
	}
	out, err := m.test(ctx, tree)
	if err := os.WriteFile(source, text, 0o600); err != nil {
		return err.Error()
	}
	switch {
	case err == nil:
		return "the tests passed: " + m.pkg + " " + m.tests
	case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
		return "the fault does not compile: " + out
	case !strings.Contains(out, "FAIL"):
		return "go test failed for another reason: " + out
	}
	return ""
}

// test runs the mutation's tests.
func (m *mutation) test(ctx context.Context, tree string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-timeout", testTimeout.String(), "-run", m.tests, m.pkg)
	cmd.Dir = tree
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -trimpath")) // copies share the build cache
	out, err := cmd.CombinedOutput()
	if err == nil && bytes.Contains(out, []byte("no tests to run")) {
		return string(out), fmt.Errorf("%s selects no test in %s", m.tests, m.pkg)
	}
	const most = 2000
	if len(out) > most {
		out = append([]byte("...\n"), out[len(out)-most:]...)
	}
	return string(out), err
}

// repository returns the folder of the main module's go.mod.
func repository() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("go list -m: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// copyTree copies the files that git tracks, or would, to a temporary folder and returns its name.
func copyTree(root string) (string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	list, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git ls-files: %w", err)
	}
	dir, err := os.MkdirTemp("", "anteroom-mutations")
	if err != nil {
		return "", err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if err := copyFile(filepath.Join(root, name), filepath.Join(dir, name)); err != nil {
			return dir, err
		}
	}
	return dir, nil
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, info.Mode())
}
