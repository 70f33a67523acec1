package api

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

const umbraToken = "u-6d3f0c9b8a714e25"

func withUmbra(o *Options) {
	o.Tokens = append(o.Tokens, Token{Name: "umbra", Tenants: []string{"umbra"}, Token: umbraToken})
}

func inUse(s *shares) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

func TestEvents_OneTokenLeavesStreamsForOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t, withUmbra, func(o *Options) { o.Limits.Streams = 8 })
	served := httptest.NewServer(b.handler)
	t.Cleanup(served.Close)
	t.Cleanup(b.server.Close)
	follow := func(tenant, token string) int {
		r, err := http.NewRequestWithContext(t.Context(), "GET", served.URL+"/v1/groups/of-"+tenant+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := served.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp.StatusCode
	}
	for _, tenant := range []string{"acme", "umbra"} {
		b.create(`{"id":"of-` + tenant + `","tenant":"` + tenant + `","type":"mail"}`)
	}
	for i := range 8 {
		if got, want := follow("acme", acmeToken), map[bool]int{true: 200, false: 503}[i < 4]; got != want {
			t.Errorf("stream %d of one token: %d, want %d", i+1, got, want)
		}
	}
	for _, other := range []struct{ tenant, token string }{{"umbra", umbraToken}, {"acme", adminToken}} {
		if got := follow(other.tenant, other.token); got != 200 {
			t.Errorf("a stream of another token: %d", got)
		}
	}
}

// slowBody reports its first Read and then stands still.
type slowBody struct {
	begun *sync.WaitGroup
	first sync.Once
	end   chan struct{}
}

func (s *slowBody) Read([]byte) (int, error) {
	s.first.Do(s.begun.Done)
	<-s.end
	return 0, io.ErrUnexpectedEOF
}

// A token that sends bodies slowly, or only announces them, does not keep the workers of other tokens from extending
// their leases.
func TestWork_SlowBodiesOfOneTokenLeaveSomeForOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.submit("g", 1)
	lease := b.lease(`{"types":["mail"]}`).Jobs[0].Lease
	end := make(chan struct{})
	var begun, ended sync.WaitGroup
	defer ended.Wait()
	defer close(end)
	for range maxHeld / maxWorkBody {
		begun.Add(1)
		ended.Go(func() {
			body := &slowBody{begun: &begun, end: end}
			b.send("POST", "/v1/work/ack", body, "Authorization: Bearer "+mailToken)
			body.first.Do(begun.Done) // refused before its body was read
		})
	}
	begun.Wait()
	if got := states(t, b.ask("POST", "/v1/work/extend", `{"leases":["`+lease+`"]}`)); got != "j0 held" {
		t.Error(got)
	}
}

// What is held for uploads is not missing for workers.
func TestWork_UploadsDoNotHoldUpWorkers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.submit("g", 1)
	lease := b.lease(`{"types":["mail"]}`).Jobs[0].Lease
	if !b.server.uploads.take(identity{admin: true}, maxHeld) {
		t.Fatal("the bytes of uploads are not free")
	}
	acks := `{"jobs":[` + strings.Repeat(`{"lease":"`+lease+`","verdict":"returned"},`, 400) + `{"lease":"` + lease + `"}]}`
	want(t, b.ask("POST", "/v1/work/ack", acks), 200)
}

// header returns the begin of a zstd frame that has a window of 1 KiB << log.
func header(log int) string { return "\x28\xb5\x2f\xfd\x00" + string([]byte{byte(log << 3)}) }

// The decoder of a slow zstd body is counted with the memory of uploads, with an id or a key too: by the window of its first frame.
func TestUpload_CountsTheMemoryOfItsDecoder(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		begin string
		held  int64
	}{
		"nothing yet": {"", 0},
		"1 KiB":       {header(0), 2<<20 + zstdBeside},
		"2 MiB":       {header(11), 2<<20 + zstdBeside},
		"4 MiB":       {header(12), 4<<20 + zstdBeside},
		"8 MiB":       {header(13), 8<<20 + zstdBeside},
		"too large":   {header(20), 8<<20 + zstdBeside},
		"3 MiB whole": {"\x28\xb5\x2f\xfd\xa0\x00\x00\x30\x00", 4<<20 + zstdBeside},
		"skippable":   {"\x50\x2a\x4d\x18\xff\x00\x00\x00", 8<<20 + zstdBeside},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			id := b.create(`{"tenant":"acme","type":"mail"}`)
			end := make(chan struct{})
			var begun, ended sync.WaitGroup
			for _, path := range []string{"/v1/groups/" + id + "/jobs", "/v1/bulk?tenant=acme&type=mail&id=slow"} {
				begun.Add(1)
				ended.Go(func() {
					body := &slowBody{begun: &begun, end: end}
					b.send("POST", path, io.MultiReader(strings.NewReader(row.begin), body), "Content-Encoding: zstd", "Idempotency-Key: k")
					body.first.Do(begun.Done) // refused before
				})
			}
			if name != "too large" {
				begun.Wait()
				if held := inUse(b.server.uploads); held != 2*row.held {
					t.Errorf("two slow bodies hold %d bytes, want %d", held, 2*row.held)
				}
			}
			close(end)
			ended.Wait()
			if held := inUse(b.server.uploads); held != 0 {
				t.Errorf("%d bytes are held", held)
			}
		})
	}
}

// A zstd body is refused where the memory of uploads has no room for its window.
func TestUpload_RefusesWindowWithoutRoom(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	const least = 2<<20 + zstdBeside
	b.server.uploads.used = maxHeld - least + 1
	for path, coding := range map[string]string{"/v1/groups/" + id + "/jobs": "zstd", "/v1/bulk?tenant=acme&type=mail&id=full": "zstd"} {
		wantCode(t, b.ask("POST", path, compressed(t, coding, lines(1)), "Content-Encoding: "+coding, "Idempotency-Key: l"), 503, "busy", "gzip")
	}
	want(t, b.ask("POST", "/v1/groups/"+id+"/jobs", compressed(t, "gzip", lines(1)), "Content-Encoding: gzip", "Idempotency-Key: l"), 200)
	if held := inUse(b.server.uploads); held != maxHeld-least+1 {
		t.Errorf("%d bytes are held", held)
	}
	b.server.uploads.used = 0
	frames := compressed(t, "zstd", lines(1)) + compressed(t, "zstd", lines(2))
	want(t, b.ask("POST", "/v1/groups/"+id+"/jobs", frames, "Content-Encoding: zstd", "Idempotency-Key: m"), 200)
	wantCode(t, b.ask("POST", "/v1/groups/"+id+"/jobs", compressed(t, "zstd", lines(1))+header(13)+"\x01\x00\x00", "Content-Encoding: zstd", "Idempotency-Key: n"),
		422, "bad_encoding", "as one frame")
}
