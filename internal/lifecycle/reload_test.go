package lifecycle

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestAddReloads_FollowsSignalsAndFiles(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	put := func(name, text string) {
		t.Helper()
		next := filepath.Join(dir, "next") // a file that is empty for a moment is another one
		if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, name); err != nil {
			t.Fatal(err)
		}
	}
	point := func(to string) {
		t.Helper()
		next := filepath.Join(dir, "next")
		if err := os.Symlink(to, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, link); err != nil {
			t.Fatal(err)
		}
	}
	put(file, "one")
	put(filepath.Join(dir, "a"), "same")
	put(filepath.Join(dir, "b"), "same")
	point("a")

	reloaded := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var g Group
	g.AddUntilDone(ctx)
	g.AddReloads(Hangups(), func() { reloaded <- struct{}{} }, func() []string { return []string{file, link, filepath.Join(dir, "none")} })
	put(file, "before the parts run")
	ended := make(chan error)
	go func() { ended <- g.Run() }()
	<-reloaded

	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	<-reloaded
	put(file, "longer")
	<-reloaded
	point("b") // a file of the same size, and perhaps of the same time
	<-reloaded
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	// A SIGHUP while the parts end has no effect.
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}
