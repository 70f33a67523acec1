package configtest

import (
	"bytes"
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// Output is the output of a program so far.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Serve runs root with a configuration file in this process. stop ends it and returns its output on stderr.
func Serve(t *testing.T, root *cobra.Command, yaml string) (stderr *Output, stop func() string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, yaml)
	return Run(t, root, file)
}

// Run is Serve with a file that exists, for tests that change it.
func Run(t *testing.T, root *cobra.Command, file string) (stderr *Output, stop func() string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stderr = &Output{}
	root.SetArgs([]string{"--config", file})
	root.SetErr(stderr)
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	stop = sync.OnceValue(func() string {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%v\n%s", err, stderr)
		}
		return stderr.String()
	})
	t.Cleanup(func() { stop() })
	return stderr, stop
}

// Eventually waits until ok reports true.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what, ": not within 30 s")
		}
	}
}
