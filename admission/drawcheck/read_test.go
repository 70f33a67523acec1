package drawcheck

import (
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/policy"
)

// An operator who publishes a wrong time of the draw makes drawn tickets look like late joins. Tokens from before the opening show it.
func TestReport_FindsDrawnTicketsThatAreCalledLate(t *testing.T) {
	id := admission.ID{1, 2, 3}
	seed := [32]byte{7}
	opens := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	d := policy.Draw{Opens: opens.UnixMicro(), Seed: seed}
	drawn := d.Opens + 5
	token := func(claims string) string {
		return fmt.Sprintf(`"x.%s.x"`, base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"jti":%q,%s}`, id, claims)))
	}
	before, order := token(fmt.Sprintf(`"ep":"1.a","seen":%d`, drawn-9e6)), d.Order(id, drawn)
	for name, row := range map[string]struct {
		drawn   int64
		tickets string
		wrong   int
		last    string
	}{
		"as it was":                       {drawn, before + token(fmt.Sprintf(`"ord":%d`, order)), 0, "all is as it was drawn"},
		"not confirmed":                   {drawn, token(fmt.Sprintf(`"seen":%d`, drawn-9e6)) + token(fmt.Sprintf(`"ord":%d`, drawn+1)), 0, "nothing is wrong, and 1 of 2 tickets were not drawn"},
		"put behind":                      {drawn, before + token(fmt.Sprintf(`"ord":%d`, drawn+1)), 1, "1 wrong"},
		"a nonce that is not in it":       {drawn, fmt.Sprintf(`{"id":%q,"order":%d,"nonce":"n"}`, id, order), 1, "1 wrong"},
		"another drawn":                   {order - 1, token(fmt.Sprintf(`"ord":%d`, order)), 0, "nothing is wrong, and 1 of 1 tickets were not drawn"},
		"another drawn, and they kept it": {drawn - 10e6, before + token(fmt.Sprintf(`"ord":%d`, drawn)), 2, "2 wrong"},
	} {
		commitment := d.Commitment()
		read, err := Read(strings.NewReader(fmt.Sprintf(`{"opens_at":%q,"commitment":"%x","span":%d,"drawn":%d,"seed":"%x"}`,
			opens.Format(time.RFC3339), commitment, d.Span(), row.drawn, seed) + row.tickets))
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		wrong, err := read.Report(&out)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if err != nil || wrong != row.wrong || !strings.HasPrefix(lines[len(lines)-1], row.last) {
			t.Errorf("%s: %d wrong, want %d (%v)\n%s", name, wrong, row.wrong, err, out.String())
		}
	}
}

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
