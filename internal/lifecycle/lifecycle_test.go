package lifecycle

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGroup_EndsPartsInOrder(t *testing.T) {
	var (
		mu     sync.Mutex
		events []string
	)
	note := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, s)
	}
	cause := errors.New("cause")
	var g Group
	for _, name := range []string{"first", "second", "third"} {
		stop := make(chan struct{})
		g.Add(func() error {
			<-stop
			note(name + " returned")
			return nil
		}, func() {
			note(name + " told")
			close(stop)
		})
	}
	g.Add(func() error { return cause }, func() {})
	if err := g.Run(); !errors.Is(err, cause) {
		t.Fatalf("Run: %v", err)
	}
	want := []string{"first told", "first returned", "second told", "second returned", "third told", "third returned"}
	if !slices.Equal(events, want) {
		t.Fatalf("%q", events)
	}
}
