// Package lifecycle runs the parts of a program and ends them in order.
package lifecycle

import (
	"github.com/oklog/run"
)

// Group runs parts until the first of them ends, then ends the others in the
// order in which they were added: each has returned before the next is told.
// So what others stand on is added last. The zero value is ready.
type Group struct{ g run.Group }

// Add adds a part. run returns when the part ends, by itself or because stop was
// called; stop is called once, also when run has returned already.
func (g *Group) Add(run func() error, stop func()) {
	done := make(chan struct{})
	g.g.Add(func() error {
		defer close(done)
		return run()
	}, func(error) {
		stop()
		<-done
	})
}

// Run runs the parts and returns what the first one to end returned.
func (g *Group) Run() error { return g.g.Run() }
