// Package lifecycle runs the parts of a program and stops them in order (Group), cancels a context at SIGTERM (UntilSignal), and calls a
// reload on SIGHUP or when a file has changed (Group.AddReloads).
package lifecycle

// Group runs parts until the first of them returns, then stops all in the order in which they were added. It waits for each part to
// return before it stops the next. Add a part after the parts that depend on it. The zero value is ready.
type Group struct{ parts []part }

type part struct {
	run  func() error
	stop func()
	done chan struct{}
}

// Add adds a part. run returns when the part has ended, by itself or because stop was called; stop is called once, even after run
// has returned.
func (g *Group) Add(run func() error, stop func()) {
	g.parts = append(g.parts, part{run, stop, make(chan struct{})})
}

// Run runs the parts and returns the error of the first part that ended.
func (g *Group) Run() error {
	if len(g.parts) == 0 {
		return nil
	}
	ended := make(chan error, len(g.parts))
	for _, p := range g.parts {
		go func() {
			defer close(p.done)
			ended <- p.run()
		}()
	}
	err := <-ended
	for _, p := range g.parts {
		p.stop()
		<-p.done
	}
	return err
}
