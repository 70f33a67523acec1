package api

import (
	"cmp"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

func TestJobLine_ParsesFields(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, row := range []struct {
		line  string
		want  store.Job
		wrong string // a part of it
	}{
		{`{"payload":{"a":1}}`, store.Job{Payload: []byte(`{"a":1}`)}, ""},
		{` { "payload" : [1, "]}" , {"x":"\"}"}] , "id":"a" } `, store.Job{ID: "a", Payload: []byte(`[1, "]}" , {"x":"\"}"}]`)}, ""},
		{`{"id":"a/b:ü","type":"mail","payload":null,"cost":1000,"run_at":"2026-01-02T04:04:05+01:00"}`,
			store.Job{ID: "a/b:ü", Type: "mail", Payload: []byte("null"), Cost: 1000, RunAt: at}, ""},
		{`{"payload":"x","cost":1e2}`, store.Job{Payload: []byte(`"x"`), Cost: 100}, ""},
		{`{"p\u0061yload":0}`, store.Job{Payload: []byte("0")}, ""},
		{`{"payload":-0.5e3}`, store.Job{Payload: []byte("-0.5e3")}, ""},

		{`{}`, store.Job{}, "payload is missing"},
		{`{"id":"a"}`, store.Job{}, "payload is missing"},
		{`{"payload":1`, store.Job{}, "not valid JSON"},
		{`{"payload":1}{"payload":2}`, store.Job{}, "not valid JSON"},
		{`[1]`, store.Job{}, "not a JSON object"},
		{`null`, store.Job{}, "not a JSON object"},
		{"{\"payload\":\"\xff\"}", store.Job{}, "not valid UTF-8"},
		{`{"payload":1,"colour":"red"}`, store.Job{}, "colour is not a field of a job"},
		{`{"Payload":1}`, store.Job{}, `"Payload" is not a field of a job`},
		{`{"payload":1,"payload":2}`, store.Job{}, "payload is given twice"},
		{`{"payload":1,"id":"a","i\u0064":"b"}`, store.Job{}, "id is given twice"},
		{`{"payload":1,"id":7}`, store.Job{}, "id is not text"},
		{`{"payload":1,"id":""}`, store.Job{}, "id has a wrong length"},
		{`{"payload":1,"id":"` + strings.Repeat("x", 129) + `"}`, store.Job{}, "id has a wrong length"},
		{`{"payload":1,"id":".."}`, store.Job{}, "id cannot stand in a path"},
		{`{"payload":1,"id":"a b"}`, store.Job{}, "id has a character that is not allowed"},
		{`{"payload":1,"id":"a\nb"}`, store.Job{}, "id has a character that is not allowed"},
		{`{"payload":1,"id":"\ud800"}`, store.Job{}, "id has a character that is not allowed"},
		{`{"payload":1,"type":"no blanks"}`, store.Job{}, "type is not allowed"},
		{`{"payload":1,"cost":0}`, store.Job{}, "cost is out of range"},
		{`{"payload":1,"cost":1001}`, store.Job{}, "cost is out of range"},
		{`{"payload":1,"cost":1.5}`, store.Job{}, "cost is not a whole number"},
		{`{"payload":1,"cost":"1"}`, store.Job{}, "cost is not a number"},
		{`{"payload":1,"cost":null}`, store.Job{}, "cost is not a number"},
		{`{"payload":1,"run_at":"tomorrow"}`, store.Job{}, "run_at is not a time"},
		{`{"payload":1,"run_at":1767323045}`, store.Job{}, "run_at is not a time"},
	} {
		var job store.Job
		wrong := parseJob([]byte(row.line), &job)
		switch {
		case row.wrong == "" && wrong != "", row.wrong != "" && !strings.Contains(wrong, row.wrong):
			t.Errorf("%s: %q, want %q", row.line, wrong, row.wrong)
		case wrong == "" && !reflect.DeepEqual(job, row.want):
			t.Errorf("%s: %+v, want %+v", row.line, job, row.want)
		}
	}
}

func TestLineIDs_DeriveFromUploadAndLine(t *testing.T) {
	ids := newLineIDs(chunkKey("k"))
	longest := ids.of(9_999_999_999_999)
	if len(longest) > 26 || ids.of(17) != newLineIDs(chunkKey("k")).of(17) || !strings.HasSuffix(ids.of(17), ".17") {
		t.Errorf("%q, %q", longest, ids.of(17))
	}
	if newLineIDs(chunkKey("k")) == newLineIDs(bulkKey("k")) || newLineIDs(chunkKey("k")) == newLineIDs(chunkKey("l")) {
		t.Error("two uploads give the same ids")
	}
	if _, wrong := jobID(ophttp.Marshal(longest)); wrong != "" {
		t.Error(wrong)
	}
}

// FuzzJobLine compares with encoding/json: lines that encoding/json refuses are refused, and accepted lines have the same values.
func FuzzJobLine(f *testing.F) {
	for _, s := range []string{
		`{"payload":1}`, `{"id":"a","type":"t","payload":{"a":[1,"}"]},"cost":3,"run_at":"2026-01-02T03:04:05Z"}`, `{"payload":1,"payload":2}`,
		`{"p\u0061yload":"\\\""}`, ` { } `, `[`, `{"payload":`, "{\"payload\":\"\xc3\x28\"}", `{"id":"\ud800","payload":0}`, `{"payload":1e400,"cost":1e400}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var job store.Job
		wrong := parseJob(line, &job)
		if wrong == "" {
			checked := job
			checked.ID = cmp.Or(checked.ID, newLineIDs("u").of(1))
			if err := checked.Validate(); err != nil {
				t.Errorf("%q was taken, and the store refuses it with the lines around it: %v", line, err)
			}
		}
		var fields map[string]json.RawMessage
		err := json.Unmarshal(line, &fields)
		if wrong != "" {
			if !utf8.ValidString(wrong) || len(wrong) > 400 {
				t.Errorf("%q: reason %q", line, wrong)
			}
			return
		}
		if err != nil {
			t.Fatalf("%q was taken: %v", line, err)
		}
		read := func(name string, to any) {
			if raw, given := fields[name]; given {
				if err := json.Unmarshal(raw, to); err != nil {
					t.Errorf("%q: %s: %v", line, name, err)
				}
				delete(fields, name)
			}
		}
		if string(fields["payload"]) != string(job.Payload) || !json.Valid(job.Payload) {
			t.Errorf("%q: payload %q, want %q", line, job.Payload, fields["payload"])
		}
		delete(fields, "payload")
		var want struct {
			id, kind string
			cost     float64
			at       time.Time
		}
		read("id", &want.id)
		read("type", &want.kind)
		read("cost", &want.cost)
		read("run_at", &want.at)
		if want.id != job.ID || want.kind != job.Type || want.cost != float64(job.Cost) || !want.at.Equal(job.RunAt) || len(fields) > 0 {
			t.Errorf("%q: %+v, want %+v and no %v", line, job, want, fields)
		}
	})
}

func BenchmarkJobLine(b *testing.B) {
	line := []byte(`{"id":"user-1234567","payload":{"to":"user1234567@example.com","template":"welcome","vars":{"name":"A. Person","n":42}}}`)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		var job store.Job
		if wrong := parseJob(line, &job); wrong != "" {
			b.Fatal(wrong)
		}
	}
}
