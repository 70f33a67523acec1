package store

import (
	"testing"
	"time"
)

// TestCallback_IsDueUntilDoneOrAbandoned: a callback is due again at the requested time, and never after it is done or abandoned.
func TestCallback_IsDueUntilDoneOrAbandoned(t *testing.T) {
	for _, row := range []struct {
		name     string
		ok, last bool
		state    string
	}{{"taken", true, false, "done"}, {"given up", false, true, "failed"}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s, c := open(t, nil)
			create(t, s, GroupSpec{ID: "g", Tenant: "a", CallbackURL: "https://example.com/done"})
			if _, err := s.Seal(t.Context(), "g"); err != nil {
				t.Fatal(err)
			}
			if g := reduce(t, s, "g"); g.Status != Completed || g.CallbackState != "pending" {
				t.Fatalf("%+v", g)
			}
			due := func() bool {
				t.Helper()
				for _, id := range dispatch(t, s).Tend {
					if tend, err := s.Tend(t.Context(), id); err != nil || tend.Callback {
						return err == nil
					}
				}
				return false
			}
			if !due() {
				t.Fatal("the group has ended and its callback is not due")
			}
			if err := s.CallbackDone(t.Context(), "g", false, false, 20*time.Second); err != nil {
				t.Fatal(err)
			}
			if c.advance(9 * time.Second); due() {
				t.Fatal("it is due before the time of its next attempt")
			}
			c.advance(9 * time.Second)
			due()
			if c.advance(2 * time.Second); !due() {
				t.Fatal("it is not due at the time of its next attempt")
			}
			if err := s.CallbackDone(t.Context(), "g", row.ok, row.last, 0); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				if c.advance(9 * time.Second); due() {
					t.Fatalf("it is due again after it was %s", row.name)
				}
			}
			if g, err := s.Group(t.Context(), "g"); err != nil || g.CallbackState != row.state || g.CallbackTries != 2 {
				t.Fatalf("%+v, %v", g, err)
			}
			clean(t, s)
		})
	}
}
