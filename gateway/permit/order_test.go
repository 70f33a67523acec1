package permit

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParseOrder(t *testing.T) {
	for _, row := range []struct{ body, path, method, fault string }{
		{`{"for":"/seatmap/812","method":"POST"}`, "/seatmap/812", "POST", ""},
		{" {\n\"method\" : \"GET\" , \"for\":\"/\\u00e9\" } ", "/é", "GET", ""},
		{``, "", "", ""},
		{`null`, "", "", ""},
		{`{"for":"/a","method":"GET"} x`, "", "", ""},
		{`{"for":"/a","method":"GET"`, "", "", ""},
		{"{\"for\":\"/\xff\",\"method\":\"GET\"}", "", "", ""},
		{`{}`, "", "", "for"},
		{`{"for":"/a"}`, "", "", "method"},
		{`{"for":"a","method":"GET"}`, "", "", "for"},
		{`{"for":"","method":"GET"}`, "", "", "for"},
		{`{"for":"/a#b","method":"GET"}`, "", "", "for"},
		{`{"for":["/a"],"method":"GET"}`, "", "", "for"},
		{`{"for":"/` + strings.Repeat("x", PathMax) + `","method":"GET"}`, "", "", "for"},
		{`{"for":"/a","method":"G T"}`, "", "", "method"},
		{`{"for":"/a","method":"` + strings.Repeat("G", methodMax+1) + `"}`, "", "", "method"},
		{`{"for":"/a","method":"GET","method":"GET"}`, "", "", "method"},
		{`{"For":"/a","method":"GET"}`, "", "", "For"},
		{`{"` + strings.Repeat("é", 40) + `":1}`, "", "", strings.Repeat("é", 32)},
	} {
		o, fault := ParseOrder([]byte(row.body))
		switch {
		case row.method != "" && (fault != nil || o.For != row.path || o.Method != row.method):
			t.Errorf("%s: %+v, %+v", row.body, o, fault)
		case row.method == "" && (fault == nil || fault.Member != row.fault || fault.Detail == ""):
			t.Errorf("%s: %+v, want a fault of %q", row.body, fault, row.fault)
		}
	}
}

// FuzzParseOrder checks that a parsed order has only what the body holds, and that bodies of encoding/json with two members are read.
func FuzzParseOrder(f *testing.F) {
	for _, body := range []string{`{"for":"/a","method":"GET"}`, `{"for":"/a","for":"/b","method":"GET"}`, `{`, `[]`, `{"for":null}`, `{"for":"/\ud800","method":"GET"}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		o, fault := ParseOrder(body)
		if fault != nil {
			if o, fault := ParseOrder([]byte(`{"for":"/a","method":"GET"}`)); fault != nil || o.For != "/a" {
				t.Fatal("a fault changes later orders")
			}
			return
		}
		var want struct {
			For    string `json:"for"`
			Method string `json:"method"`
		}
		if err := json.Unmarshal(body, &want); err != nil || want.For != o.For || want.Method != o.Method {
			t.Fatalf("%q: %+v, encoding/json has %+v, %v", body, o, want, err)
		}
		if !isPath(o.For) || !isMethod(o.Method) {
			t.Fatalf("%q: %+v", body, o)
		}
	})
}
