package drawcheck

import (
	"io"
	"strings"
	"testing"
)

func FuzzRead(f *testing.F) {
	f.Add(`{"opens_at":"2026-11-21T23:57:57Z","commitment":"` + strings.Repeat("0f", 32) + `","span":5,"drawn":9,"seed":"` + strings.Repeat("1e", 32) + `"}[{"id":"NlGNaWJAb08jdnba5B0Ovw"}]`)
	f.Add(`"a.eyJqdGkiOiJObEdOYVdKQWIwOGpkbmJhNUIwT3Z3Iiwib3JkIjo1fQ.c" {"token":"x"} [[[]]] {"tickets":[1]}`)
	f.Add(`{"id":"NlGNaWJAb08jdnba5B0Ovw","order":-1}`)
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		if wrong, err := d.Report(io.Discard); err != nil || wrong < 0 {
			t.Fatalf("%d %v", wrong, err)
		}
	})
}
