package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

const key = "Idempotency-Key: "

var errCut = errors.New("the connection broke")

// cut is a body that breaks off behind text.
func cut(text string) io.Reader {
	return io.MultiReader(strings.NewReader(text), iotest.ErrReader(errCut))
}

func TestAddJobs_AcceptsLinesBesideBadOnes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	body := "\ufeff" + strings.Join([]string{
		`{"id":"a","payload":1}`, // 1
		`{"id":"b","payload":`,
		``,
		`{"id":"a","payload":2}`,
		`{"id":"c"}`, // 5
		`{"id":"d","payload":"` + strings.Repeat("x", 64<<10) + `"}`,
		`{"id":"e","payload":1,"cost":1001}`,
		`{"id":"f","payload":1,"colour":"red"}`,
		`{"payload":1,"run_at":"soon"}`,
		`{"payload":2}`, // 10
		`   `,
		`{"payload":2}`,
	}, "\r\n")
	for _, header := range []string{key, key + "k"} {
		id := id + strings.TrimPrefix(header, key)
		if header != key {
			id = b.create(`{"tenant":"acme","type":"mail","id":"` + id + `"}`)
		}
		w := b.ask("POST", "/v1/groups/"+id+"/jobs", body, header)
		want(t, w, 200, `{"accepted":3,"duplicates":1,"rejected":[
			{"line":2,"reason":"not valid JSON: unexpected end of JSON input at byte 20"},
			{"line":5,"reason":"payload is missing: every job has one, if only null"},
			{"line":6,"reason":"the line is longer than limits.line, 65536 bytes"},
			{"line":7,"reason":"cost is out of range: a cost is a whole number from 1 to 1000"},
			{"line":8,"reason":"colour is not a field of a job: it has id, type, payload, cost, run_at and expires_at"},
			{"line":9,"reason":"run_at is not a time: write RFC 3339 with a zone, as \"2026-01-02T15:04:05Z\""}],"rejected_total":6}`)
		if got := pick(b.group(id), "status", "total", "pending"); got != `status="CREATED" total=3 pending=3` {
			t.Error(got)
		}
	}
}

func TestAddJobs_BoundsNamedRejections(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	w := b.ask("POST", "/v1/groups/"+id+"/jobs", strings.Repeat("{}\n", 1500)+lines(1))
	want(t, w, 200)
	v := decoded(t, w)
	if got := pick(v, "accepted", "duplicates", "rejected_total"); got != "accepted=1 duplicates=0 rejected_total=1500" || len(v["rejected"].([]any)) != 1000 {
		t.Errorf("%s, %d named", got, len(v["rejected"].([]any)))
	}
}

func TestAddJobs_RepeatsAnswerOfCompleteChunk(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	jobs := "/v1/groups/" + id + "/jobs"
	first := b.ask("POST", jobs, lines(700)+"{}\n", key+"k1")
	want(t, first, 200, `{"accepted":700,"duplicates":0,"rejected":[{"line":701,"reason":"payload is missing: every job has one, if only null"}],"rejected_total":1}`)
	again := b.ask("POST", jobs, lines(700)+"{}\n", key+"k1")
	if again.Code != 200 || again.Body.String() != first.Body.String() {
		t.Errorf("%d %s", again.Code, again.Body)
	}
	// Other lines under the same key must not be confirmed as if they had been accepted.
	wantCode(t, b.ask("POST", jobs, lines(701), key+"k1"), 422, "idempotency_key", "other lines", id)
	other := b.ask("POST", jobs, lines(701), key+"k2")
	want(t, other, 200, `{"accepted":1,"duplicates":700,"rejected":[],"rejected_total":0}`)
	want(t, b.ask("POST", jobs, "", key+"k3"), 200, `{"accepted":0,"duplicates":0,"rejected":[],"rejected_total":0}`)

	want(t, b.ask("POST", "/v1/groups/"+id+"/seal", ""), 200)
	if again = b.ask("POST", jobs, lines(700)+"{}\n", key+"k1"); again.Code != 200 || again.Body.String() != first.Body.String() {
		t.Errorf("after the seal: %d %s", again.Code, again.Body)
	}
	wantCode(t, b.ask("POST", jobs, lines(1), key+"new"), 409, "sealed", id)
	wantCode(t, b.ask("POST", jobs, lines(1)), 409, "sealed", id)
}

// An interrupted chunk is sent again as a whole. Each of its jobs counts as accepted once, whichever attempt added the job.
func TestAddJobs_ContinuesBrokenChunk(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	jobs := "/v1/groups/" + id + "/jobs"
	want(t, b.ask("POST", jobs, lines(100), key+"before"), 200)
	body := lines(1600) + `{"payload":"no id"}` + "\n" + `{"payload":"no id"}`

	w := b.send("POST", jobs, cut(body[:len(body)-25]), key+"k")
	wantCode(t, w, 400, "bad_body", "send the same again with the same key", `"accepted":1400`)
	wantCode(t, b.ask("POST", "/v1/groups/"+id+"/seal", ""), 409, "chunk_open")
	w = b.send("POST", jobs, cut(body[:len(body)/3]), key+"k")
	wantCode(t, w, 400, "bad_body", `"accepted":1400`)

	want(t, b.ask("POST", jobs, body, key+"k"), 200, `{"accepted":1502,"duplicates":100,"rejected":[],"rejected_total":0}`)
	want(t, b.ask("POST", "/v1/groups/"+id+"/seal", ""), 200)
	if got := pick(b.group(id), "total", "status"); got != `total=1602 status="DISPATCHED"` {
		t.Error(got)
	}
}

// A chunk whose sender is gone does not keep its group open. The jobs received so far run; the rest is refused when the sender returns.
func TestSeal_AbandonsAChunkOnRequest(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	jobs, seal := "/v1/groups/"+id+"/jobs", "/v1/groups/"+id+"/seal"
	body := lines(1600)
	wantCode(t, b.send("POST", jobs, cut(body[:len(body)-25]), key+"k"), 400, "bad_body", `"accepted":1500`)
	wantCode(t, b.ask("POST", seal, `{"abandon_chunks":false}`), 409, "chunk_open", "abandon_chunks")
	wantCode(t, b.ask("POST", seal, `{"abandon_chunks":1}`), 422, "invalid", "abandon_chunks")
	want(t, b.ask("POST", seal, `{"abandon_chunks":true}`), 200)
	if got := pick(b.group(id), "total", "status"); got != `total=1500 status="DISPATCHED"` {
		t.Error(got)
	}
	wantCode(t, b.ask("POST", jobs, body, key+"k"), 409, "sealed", id)
	want(t, b.ask("POST", seal, `{"abandon_chunks":true}`), 200) // again is no error
}

// The store goes away during a chunk. The server waits through a short outage; after a long one the client sends the same chunk again.
// No job is lost or counted twice, whether or not the store executed the calls that it did not reply to.
func TestAddJobs_ContinuesAfterOutage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	total := 0
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	for _, after := range []bool{false, true} {
		for _, lost := range []int{1, 2, 3} {
			name := fmt.Sprintf("%v%d", after, lost)
			text := strings.ReplaceAll(lines(2400), `"j`, `"`+name)
			broken := &faulty{sink: b.store, good: 2, lost: lost, after: after}
			u := &upload{to: broken, group: id, key: chunkKey(name), ids: newLineIDs(name), waits: []time.Duration{1, 1}, body: newSentBody(strings.NewReader(text))}
			err := u.run(t.Context(), newLineReader(u.body, 1<<10))
			if lost > len(u.waits) {
				if p := asProblem(u.explain(err)); p.Code != "store_unavailable" || *p.Accepted != 1000 || !strings.Contains(p.Detail, "send the same again") {
					t.Fatalf("%s: %+v", name, p)
				}
				u = &upload{to: b.store, group: id, key: chunkKey(name), ids: newLineIDs(name), body: newSentBody(strings.NewReader(text))}
				err = u.run(t.Context(), newLineReader(u.body, 1<<10))
			}
			if err != nil || u.Accepted != 2400 || u.Duplicates != 0 {
				t.Errorf("%s: %+v, %v", name, u.Tally, err)
			}
			total += 2400
		}
	}
	if got := pick(b.group(id), "total"); got != fmt.Sprintf("total=%d", total) {
		t.Error(got)
	}
	// Without a key a repeated call could add the jobs twice, so it is not repeated.
	u := &upload{to: &faulty{sink: b.store, lost: 1}, group: id, ids: newLineIDs("u"), waits: []time.Duration{1, 1}}
	if err := u.run(t.Context(), newLineReader(strings.NewReader(lines(1)), 1<<10)); !errors.Is(err, store.ErrStore) {
		t.Error(err)
	}
}

// faulty fails so many calls after the good ones, before or after the store has executed them.
type faulty struct {
	sink
	good, lost int
	after      bool
}

func (f *faulty) AddJobs(ctx context.Context, group string, c store.Chunk, jobs []store.Job) (store.Added, error) {
	if f.good--; f.good >= 0 || f.lost == 0 {
		return f.sink.AddJobs(ctx, group, c, jobs)
	}
	f.lost--
	if f.after {
		if _, err := f.sink.AddJobs(ctx, group, c, jobs); err != nil {
			return store.Added{}, err
		}
	}
	return store.Added{}, fmt.Errorf("%w: cut", store.ErrStore)
}

func TestAddJobs_WithoutKeyAddsAtEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	jobs := "/v1/groups/" + id + "/jobs"
	wantCode(t, b.send("POST", jobs, cut(lines(5000))), 400, "bad_body")
	wantCode(t, b.ask("POST", jobs, lines(10_001)), 422, "idempotency_key", "10000 lines", "Idempotency-Key")
	wantCode(t, b.ask("POST", jobs, strings.Repeat("x", maxKeylessBytes+1)), 422, "idempotency_key")
	if got := pick(b.group(id), "total"); got != "total=0" {
		t.Fatal(got)
	}
	want(t, b.ask("POST", jobs, strings.TrimSuffix(lines(10_000), "\n")), 200, `{"accepted":10000,"duplicates":0,"rejected":[],"rejected_total":0}`)
	if held := inUse(b.server.uploads); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
	b.server.uploads.used = maxHeld - 10
	wantCode(t, b.ask("POST", jobs, lines(1)), 503, "busy", "Idempotency-Key")
}

func TestAddJobs_RefusesAGroupCreatedAtAnotherTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	created := b.group(id)["created_at"].(string)
	for _, header := range [][]string{nil, {key + "k"}} {
		jobs := "/v1/groups/" + id + "/jobs?created_at="
		wantCode(t, b.ask("POST", jobs+"2026-01-02T03:04:05.000006Z", lines(1), header...), 404, "not_found", id, "created_at")
		wantCode(t, b.ask("POST", jobs+"noon", lines(1), header...), 422, "invalid", "created_at")
		want(t, b.ask("POST", jobs+created, lines(1), header...), 200)
	}
}

func TestAddJobs_DerivesIDsFromLines(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	jobs := "/v1/groups/" + id + "/jobs"
	same := strings.Repeat("{\"payload\":1}\n", 3)
	want(t, b.ask("POST", jobs, same), 200, `{"accepted":3,"duplicates":0,"rejected":[],"rejected_total":0}`)
	want(t, b.ask("POST", jobs, same), 200, `{"accepted":3,"duplicates":0,"rejected":[],"rejected_total":0}`)
	want(t, b.ask("POST", jobs, same, key+"k"), 200, `{"accepted":3,"duplicates":0,"rejected":[],"rejected_total":0}`)
}

func TestAddJobs_ContinuesAfterQuota(t *testing.T) {
	t.Parallel()
	set := store.Defaults()
	set.PendingPerTenant = 700
	b := newBenchOn(t, redistest.Client(t), set)
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	w := b.ask("POST", "/v1/groups/"+id+"/jobs", lines(1000), key+"k")
	wantCode(t, w, 429, "quota", "has 500 unfinished jobs", "500 more", "limits.pending_per_tenant is 700; wait", `"accepted":500`)
	if w.Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	b.run(done)
	want(t, b.ask("POST", "/v1/groups/"+id+"/jobs", lines(1000), key+"k"), 200, `{"accepted":1000,"duplicates":0,"rejected":[],"rejected_total":0}`)
}

func TestAddJobs_RefusesInvalidUploads(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *Options) { o.AllowType = func(kind string) bool { return kind == "mail" } })
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	jobs := "/v1/groups/" + id + "/jobs"
	wantCode(t, b.ask("POST", "/v1/groups/none/jobs", lines(1)), 404, "not_found", "none")
	wantCode(t, b.ask("POST", jobs, lines(1), key+"a b"), 422, "idempotency_key")
	wantCode(t, b.ask("POST", jobs, lines(1), key+strings.Repeat("x", 129)), 422, "idempotency_key")
	wantCode(t, b.ask("POST", jobs, lines(1), "Content-Type: multipart/form-data; boundary=x"), 415, "unsupported_media_type", ndjson)
	wantCode(t, b.ask("POST", jobs, lines(1), "Content-Type: text/plain", "Referer: http://example.com/"), 415, "unsupported_media_type")
	wantCode(t, b.ask("POST", jobs+"?priority=high", lines(1)), 422, "invalid", "priority")
	for _, kind := range []string{"application/x-ndjson", "application/json; charset=utf-8", "application/x-www-form-urlencoded", ""} {
		want(t, b.ask("POST", jobs, lines(1), "Content-Type: "+kind), 200)
	}
	want(t, b.ask("POST", jobs, `{"type":"fax","payload":1}`), 200,
		`{"accepted":0,"duplicates":0,"rejected":[{"line":1,"reason":"type \"fax\" has no handler here"}],"rejected_total":1}`)
	wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"fax"}`), 422, "invalid", "type", "processor")
}

func TestCreateGroup_RefusesForbiddenCallback(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *Options) {
		o.CheckCallback = func(string) error { return errors.New("the operator forbids it") }
	})
	wantCode(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail","callback_url":"http://a/"}`), 422, "invalid", "callback_url", "the operator forbids it")
	wantCode(t, b.ask("POST", "/v1/bulk?tenant=acme&type=mail&callback_url=http://a/", lines(1)), 422, "invalid", "the operator forbids it")
	want(t, b.ask("POST", "/v1/groups", `{"tenant":"acme","type":"mail"}`), 201)
}

func TestBulk_CreatesAddsAndSeals(t *testing.T) {
	t.Parallel()
	var enqueued atomic.Int64
	b := newBench(t, func(o *Options) { o.Enqueued = func(n int64) { enqueued.Add(n) } })
	const path = "/v1/bulk?tenant=acme&type=mail&priority=high&failure_tolerance=5%25"
	body := lines(1200) + "{}\n"
	answer := func(w *httptest.ResponseRecorder) (id, counts string) {
		t.Helper()
		v := decoded(t, w)
		id, _ = v["id"].(string)
		if location := w.Header().Get("Location"); location != "/v1/groups/"+id {
			t.Errorf("Location %q of %q", location, id)
		}
		return id, pick(v, "status", "sealed", "total", "priority", "failure_tolerance", "accepted", "duplicates", "rejected_total")
	}
	const all = `status="DISPATCHED" sealed=true total=1200 priority="high" failure_tolerance="5%" accepted=1200 duplicates=0 rejected_total=1`

	// The group is named by its id, by a key, or not at all.
	for _, row := range []struct{ path, header string }{{path + "&id=one", key}, {path, key + "two"}, {path + "&id=three", key + "three"}} {
		w := b.send("POST", row.path, cut(body[:len(body)/2]), row.header)
		wantCode(t, w, 400, "bad_body", `"group":`)
		w = b.ask("POST", row.path, body, row.header)
		want(t, w, 201)
		id, counts := answer(w)
		if counts != all {
			t.Errorf("%v: %s", row, counts)
		}
		w = b.ask("POST", row.path, body, row.header)
		want(t, w, 200)
		if same, counts := answer(w); same != id || counts != all {
			t.Errorf("%v again: %s %s", row, same, counts)
		}
		wantCode(t, b.ask("POST", row.path, body+lines(1), row.header), 422, "idempotency_key", "other lines", id)
	}
	wantCode(t, b.send("POST", path, cut(body)), 400, "bad_body")
	w := b.ask("POST", path, body)
	want(t, w, 201)
	if _, counts := answer(w); counts != all {
		t.Error(counts)
	}
	wantCode(t, b.ask("POST", path, lines(10_001)), 422, "idempotency_key", "an id or an Idempotency-Key")
	wantCode(t, b.ask("POST", path+"&id=one&weight=2", body), 409, "exists", "one")
	wantCode(t, b.ask("POST", path+"&weight=2", body, key+"two"), 422, "idempotency_key")
	wantCode(t, b.ask("POST", path+"&id=one", body, key+"another"), 409, "sealed")
	wantCode(t, b.ask("POST", "/v1/bulk?tenant=acme&wieght=2", body), 422, "invalid", "wieght", "type")
	if n := enqueued.Load(); n != 4*1200 {
		t.Errorf("%d jobs were counted, want those of 4 groups once", n)
	}
	w = b.ask("GET", "/v1/groups?limit=1000", "")
	if got := len(decoded(t, w)["groups"].([]any)); got != 4 {
		t.Errorf("%d groups, want 4: what broke off without a name has none", got)
	}
}

// A long chunk needs no more memory than a short one.
func TestBulk_StreamsLongUpload(t *testing.T) {
	b := newBench(t)
	const jobs, every = 50_000, 5_000
	var least, most uint64
	pr, pw := io.Pipe()
	go func() {
		payload := strings.Repeat("x", 1000)
		for i := range jobs {
			if i%every == 0 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				if most = max(most, m.HeapAlloc); least == 0 {
					least = m.HeapAlloc
				}
			}
			fmt.Fprintf(pw, "{\"payload\":{\"n\":%d,\"x\":\"%s\"}}\n", i, payload)
		}
		pw.Close()
	}()
	w := b.send("POST", "/v1/bulk?tenant=acme&type=mail&id=long", pr)
	want(t, w, 201)
	if got := pick(decoded(t, w), "total", "accepted", "duplicates", "rejected_total"); got != "total=50000 accepted=50000 duplicates=0 rejected_total=0" {
		t.Error(got)
	}
	if most-least > 8<<20 {
		t.Errorf("the heap grew from %d to %d bytes for a body of %d", least, most, jobs*1000)
	}
}

// Submitting one job costs three scripts: create the group, add the job with the end of its chunk, seal the group. Three separate
// requests cost as many.
func TestSubmit_OfOneJobCostsThreeScripts(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var scripts []string
	b := newBenchWith(t, store.Options{Client: redistest.Client(t), Settings: store.Defaults(), Observe: func(script string, _ time.Duration, _ error) {
		mu.Lock()
		defer mu.Unlock()
		scripts = append(scripts, script)
	}})
	cost := func(want int) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if len(scripts) != want {
			t.Errorf("%d scripts, want %d: %v", len(scripts), want, scripts)
		}
		scripts = nil
	}
	if err := b.store.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	cost(2) // the number of shards and the layout
	want(t, b.ask("POST", "/v1/bulk?tenant=acme&type=mail&id=a", lines(1)), 201)
	cost(3)
	want(t, b.ask("POST", "/v1/groups", `{"id":"b","tenant":"acme","type":"mail"}`), 201)
	want(t, b.ask("POST", "/v1/groups/b/jobs", lines(1), "Idempotency-Key: one"), 200)
	want(t, b.ask("POST", "/v1/groups/b/seal", ""), 200)
	cost(3)
	// A chunk that was interrupted is completed when it is sent again.
	want(t, b.ask("POST", "/v1/groups", `{"id":"c","tenant":"acme","type":"mail"}`), 201)
	if _, err := b.store.AddJobs(t.Context(), "c", store.Chunk{Key: chunkKey("one")}, []store.Job{{ID: "j0", Payload: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		want(t, b.ask("POST", "/v1/groups/c/jobs", lines(3), "Idempotency-Key: one"), 200, `{"accepted":3,"duplicates":0,"rejected":[],"rejected_total":0}`)
	}
	want(t, b.ask("POST", "/v1/groups/c/jobs", lines(4), "Idempotency-Key: two"), 200, `{"accepted":1,"duplicates":3,"rejected":[],"rejected_total":0}`)
	want(t, b.ask("POST", "/v1/groups/c/seal", ""), 200)
}
