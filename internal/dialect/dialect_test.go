package dialect

import "testing"

// A proxy must not let a denied request pass.
func TestDialects_DenyWithNoStatusThatPasses(t *testing.T) {
	for _, name := range Names() {
		d, err := Parse(name)
		if err != nil || d.String() != name {
			t.Fatalf("%s is read as %s (%v)", name, d, err)
		}
		if !d.CanDeny(401) {
			t.Errorf("%s cannot send the default status 401", name)
		}
		for status := 100; status < 400; status++ {
			if d.CanDeny(status) && status != 302 && status != 303 && status != 307 {
				t.Errorf("%s denies with %d", name, status)
			}
		}
		if d.Family() == Prefixed && d.CanDeny(503) {
			t.Errorf("%s denies with 503, which counts as a failure of the check there", name)
		}
	}
	if _, err := Parse("apache"); err == nil {
		t.Error("apache is a dialect")
	}
}
