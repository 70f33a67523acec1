package route

import (
	"strings"
	"testing"

	"github.com/anteroom/anteroom/gateway/client/clienttest"
)

func TestStep(t *testing.T) {
	steps, err := NewSteps([]StepRule{
		{Paths: []string{"/seatmap", "~^/item/\\d+/buy$"}, Methods: []string{"POST", "delete"}},
		{Paths: []string{"/checkout"}},
		{Methods: []string{"PUT"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	override := [][2]string{{"X-HTTP-Method-Override", "POST"}}
	for _, row := range []struct {
		name, method, path string
		header             [][2]string
		want               bool
	}{
		{"path and method", "POST", "/seatmap/812", nil, true},
		{"another method", "GET", "/seatmap/812", nil, false},
		{"a method in small letters", "post", "/seatmap/812", nil, true},
		{"an overridden method", "GET", "/seatmap/812", override, true},
		{"an overridden method elsewhere", "GET", "/about", override, true}, // it may be PUT
		{"a regular expression", "DELETE", "/Item/7/buy", nil, true},
		{"another path", "POST", "/item/x/buy", nil, false},
		{"every method", "GET", "/checkout", nil, true},
		{"below", "GET", "/checkout/pay", nil, true},
		{"parameters", "GET", "/checkout;v=1", nil, true},
		{"one reading of several", "GET", "/a/..%2fcheckout", nil, true},
		{"another reading", "GET", "/checkout/../about", nil, true},
		{"every path", "PUT", "/about", nil, true},
		{"nothing", "GET", "/about", nil, false},
		{"a path that cannot be matched", "GET", "/" + strings.Repeat("a", patternMax) + "/%41", nil, false}, // no rule with patterns has GET
		{"a path too long for expressions", "POST", "/" + strings.Repeat("a", patternMax), nil, true},
	} {
		q := clienttest.Request(t, row.method, "10.0.0.1", row.header...)
		got := false
		for i := range steps {
			got = got || steps[i].Matches(q, readingsOf(row.path))
		}
		if got != row.want {
			t.Errorf("%s: %v", row.name, got)
		}
	}
	for want, rule := range map[string]StepRule{
		"permits[0]: the rule is empty; name paths or methods":                        {},
		`permits[0].paths: "x": a path begins with / and a regular expression with ~`: {Paths: []string{"x"}},
		"permits[0].paths: \"~(\": error parsing regexp: missing closing ): `(`":      {Paths: []string{"~("}},
	} {
		if _, err := NewSteps([]StepRule{rule}); err == nil || err.Error() != want {
			t.Errorf("%v: %v, want %s", rule, err, want)
		}
	}
}

func TestAppendExact(t *testing.T) {
	for _, row := range []struct{ path, want string }{
		{"/seatmap/812", "/seatmap/812"},
		{"/Seatmap/812/", "/Seatmap/812/"},
		{"/a%7Eb%2d%20c", "/a~b- c"},
		{"/caf%c3%a9", "/café"},
		{"/caf%C3%A9", "/café"},
		{"/café", "/café"},
		{"/100%25", "/100%25"},
		{"/ſ", "/ſ"},
		// Servers read these in several ways.
		{"/%61", ""}, {"/a//b", ""}, {"/a/./b", ""}, {"/a/%2e%2e/b", ""}, {"/a;v=1", ""}, {"/a%3bv", ""}, {"/a%2fb", ""}, {"/a%5cb", ""}, {`/a\b`, ""},
		{"//a", ""}, {"/a%00", ""}, {"/%u0073ale", ""},
		// and these are not text.
		{"/a%0a", ""}, {"/a%7f", ""}, {"/%ff", ""}, {"/\xff", ""},
	} {
		got, ok := AppendExact([]byte("kept"), []byte(row.path), readingsOf(row.path))
		if ok != (row.want != "") || ok && string(got) != "kept"+row.want {
			t.Errorf("%q: %q, %v", row.path, got, ok)
		}
	}
}
