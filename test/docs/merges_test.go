package docs

import (
	"regexp"
	"testing"
)

var marker = regexp.MustCompile(`(?m)^(<<<<<<< |>>>>>>> ).*$`)

// TestPages_AreMerged checks that no page has what git leaves where two versions of a text conflict.
func TestPages_AreMerged(t *testing.T) {
	for _, page := range pages(t) {
		if m := marker.FindString(read(t, page)); m != "" {
			t.Errorf("%s: %q is left of a merge", page, m)
		}
	}
}
