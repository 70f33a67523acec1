package webhook

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/outbound"
)

// batchOf returns jobs j0, j1, … of one group.
func batchOf(n int) []*bulk.Job {
	jobs := make([]*bulk.Job, n)
	for i := range jobs {
		jobs[i] = &bulk.Job{ID: fmt.Sprint("j", i), Group: "g1", Tenant: "acme", Type: "webhook", Payload: fmt.Appendf(nil, `{"n":%d}`, i), Cost: 1,
			Attempt: 1, Fence: int64(100 + i), IdempotencyKey: fmt.Sprint("g1/j", i)}
	}
	return jobs
}

// outcomesOf describes results: the result, or the error as outcome does.
func outcomesOf(results []bulk.BatchResult) string {
	var all []string
	for _, r := range results {
		if r.Err == nil {
			all = append(all, "done "+string(r.Result))
			continue
		}
		all = append(all, outcome(r.Err))
	}
	return strings.Join(all, ", ")
}

func TestBatch_SendsDocumentedRequest(t *testing.T) {
	var got *http.Request
	var body []byte
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		fmt.Fprint(w, `[{"id":"j1","verdict":"done"},{"id":"j0","verdict":"done","result":{"ok":true}}]`)
	})
	secret := []byte("0123456789abcdef0123456789abcdef")
	h := handler(t, Options{URL: s.URL, Secret: secret, Headers: map[string]string{"X-Team": "a"}})
	if got := outcomesOf(h.HandleBatch(t.Context(), batchOf(2))); got != `done {"ok":true}, done ` {
		t.Fatal(got)
	}
	if want := `[{"id":"j0","attempt":1,"fence":100,"idempotency_key":"g1/j0","payload":{"n":0}},{"id":"j1","attempt":1,"fence":101,"idempotency_key":"g1/j1","payload":{"n":1}}]`; string(body) != want {
		t.Errorf("%s, want %s", body, want)
	}
	for name, want := range map[string]string{"X-Bulk-Group": "g1", "X-Bulk-Tenant": "acme", "X-Bulk-Batch": "2", "X-Bulk-Job": "", "X-Team": "a", "Content-Type": "application/json"} {
		if got.Header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.Header.Get(name), want)
		}
	}
	if err := outbound.Verify(secret, got.Header.Get(outbound.SignatureHeader), time.Now(), body); err != nil {
		t.Error(err)
	}
	first := got.Header.Get("Idempotency-Key")
	h.HandleBatch(t.Context(), batchOf(2))
	if again := got.Header.Get("Idempotency-Key"); !strings.HasPrefix(first, "batch-") || again != first {
		t.Errorf("keys %q and %q", first, again)
	}
	h.HandleBatch(t.Context(), batchOf(1))
	if other := got.Header.Get("Idempotency-Key"); other == first {
		t.Error("another batch has the same key")
	}
}

// Each job has the verdict that the response has for it; one without, or with one that cannot be read, is a failed try.
func TestBatch_ReadsVerdicts(t *testing.T) {
	long := `"` + strings.Repeat("x", 200) + `"`
	for _, row := range []struct {
		status       int
		answer, want string
	}{
		{200, `[{"id":"j0","verdict":"done","result":[1]},{"id":"j1","verdict":"retry","code":"no_disk","retry_after":5}]`, "done [1], fail no_disk 5s"},
		{200, `[{"id":"j1","verdict":"failed","code":"gone","error":"why"},{"id":"j0","verdict":"busy","retry_after":2.5}]`, "busy busy 2.5s, permanent gone"},
		{201, `[{"id":"j0","verdict":"busy_group","retry_after":7,"down":true},{"id":"j1","verdict":"retry","down":true}]`, "down, busy group busy 7s, down, fail error"},
		{200, `[{"id":"j0","verdict":"done","result":` + long + `},{"id":"j1","verdict":"done","more":1}]`, `done {"dropped":"result_too_large","limit":100}, done `},
		{200, `[{"id":"j0","verdict":"done"}]`, "done , fail no_verdict"},
		{200, `[{"id":"j0","verdict":"done"},{"id":"j7","verdict":"done"}]`, "done , fail no_verdict"},
		{200, `[]`, "fail no_verdict, fail no_verdict"},
		{200, `[{"id":"j0"},{"id":"j1","verdict":"DONE"}]`, "fail bad_verdict, fail bad_verdict"},
		{200, `[{"id":"j0","verdict":"done"},{"id":"j0","verdict":"failed"},{"id":"j1","verdict":"done"}]`, "fail bad_verdict, done "},
		{200, `[{"id":"j0","verdict":7},{"id":"j1","verdict":"done"}]`, "fail bad_verdict, done "},
		{200, `[{"id":"j0","verdict":"retry","retry_after":-5},{"id":"j1","verdict":"retry","retry_after":1e9}]`, "fail error, fail error 24h0m0s"},
		{200, `{"j0":"done"}`, "fail bad_verdict, fail bad_verdict"},
		{200, `null`, "fail bad_verdict, fail bad_verdict"},
		{200, ``, "fail bad_verdict, fail bad_verdict"},
		{204, ``, "fail bad_verdict, fail bad_verdict"},
		{200, `[` + strings.Repeat(" ", 3000) + `]`, "fail bad_verdict, fail bad_verdict"},
		{422, `[{"id":"j0","verdict":"done"}]`, "permanent http_422, permanent http_422"},
		{500, ``, "fail http_500, fail http_500"},
		{503, ``, "down, busy busy, down, busy busy"},
	} {
		s := server(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(row.status)
			if row.status != 204 {
				_, _ = io.WriteString(w, row.answer)
			}
		})
		if got := outcomesOf(handler(t, Options{URL: s.URL, MaxResult: 100}).HandleBatch(t.Context(), batchOf(2))); got != row.want {
			t.Errorf("%d %.80s: %s, want %s", row.status, row.answer, got, row.want)
		}
	}
}

func TestBatch_ReportsMissingResponse(t *testing.T) {
	s := httptest.NewServer(nil)
	s.Close()
	if got := outcomesOf(handler(t, Options{URL: s.URL}).HandleBatch(t.Context(), batchOf(2))); got != "down, fail connection, down, fail connection" {
		t.Error(got)
	}
}

func FuzzVerdicts(f *testing.F) {
	f.Add(`[{"id":"j0","verdict":"done"}]`)
	f.Add(`[{"id":"j1","verdict":"retry","retry_after":1e300}]`)
	h, err := New(Options{URL: "http://127.0.0.1:9/"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body string) {
		jobs := batchOf(3)
		results := h.verdicts(&outbound.Answer{Status: 200, Body: []byte(body)}, jobs)
		if len(results) != len(jobs) {
			t.Fatalf("%d results", len(results))
		}
		for i, r := range results {
			if r.Err == nil && !json.Valid([]byte(body)) {
				t.Errorf("job %d is done by %q", i, body)
			}
		}
	})
}
