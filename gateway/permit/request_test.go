package permit

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParseRequest(t *testing.T) {
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
		r, fault := ParseRequest([]byte(row.body))
		switch {
		case row.method != "" && (fault != nil || r.For != row.path || r.Method != row.method):
			t.Errorf("%s: %+v, %+v", row.body, r, fault)
		case row.method == "" && (fault == nil || fault.Member != row.fault || fault.Detail == ""):
			t.Errorf("%s: %+v, want a fault of %q", row.body, fault, row.fault)
		}
	}
}

// FuzzParseRequest checks that a parsed body has the values that encoding/json reads.
func FuzzParseRequest(f *testing.F) {
	for _, body := range []string{`{"for":"/a","method":"GET"}`, `{"for":"/a","for":"/b","method":"GET"}`, `{`, `[]`, `{"for":null}`, `{"for":"/\ud800","method":"GET"}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, fault := ParseRequest(body)
		if fault != nil {
			return
		}
		var want struct {
			For    string `json:"for"`
			Method string `json:"method"`
		}
		if err := json.Unmarshal(body, &want); err != nil || want.For != r.For || want.Method != r.Method {
			t.Fatalf("%q: %+v, encoding/json has %+v, %v", body, r, want, err)
		}
		if !isPath(r.For) || !isMethod(r.Method) {
			t.Fatalf("%q: %+v", body, r)
		}
	})
}
