package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/anteroom/anteroom/internal/ophttp"
)

func compressed(t testing.TB, coding, text string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if coding == "zstd" {
		var err error
		if w, err = zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestUpload_Compressed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, coding := range []string{"gzip", "zstd"} {
		body, header := compressed(t, coding, lines(3)), "Content-Encoding: "+coding
		id := b.create(`{"tenant":"acme","type":"mail"}`)
		jobs := "/v1/groups/" + id + "/jobs"
		want(t, b.ask("POST", jobs, body, header, key+"k"), 200, `{"accepted":3,"duplicates":0,"rejected":[],"rejected_total":0}`)
		// The same lines are the same chunk, however they are sent; without a key they are the same jobs.
		want(t, b.ask("POST", jobs, lines(3), key+"k"), 200, `{"accepted":3,"duplicates":0,"rejected":[],"rejected_total":0}`)
		want(t, b.ask("POST", jobs, body, header), 200, `{"accepted":0,"duplicates":3,"rejected":[],"rejected_total":0}`)
		want(t, b.ask("POST", "/v1/bulk?tenant=acme&type=mail&id=bulk-"+coding, body, header), 201)
		if g := b.group("bulk-" + coding); g["total"] != 3.0 || g["sealed"] != true {
			t.Error(pick(g, "total", "sealed"))
		}
		// Frames one after the other are one body, as with cat.
		want(t, b.ask("POST", jobs, body+compressed(t, coding, `{"id":"last","payload":1}`), header, key+"two"), 200, `{"accepted":1,"duplicates":3,"rejected":[],"rejected_total":0}`)
	}
}

func TestUpload_RefusesBadCompression(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *Options) { o.Limits.Decompressed = 4 << 20 })
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	jobs := "/v1/groups/" + id + "/jobs"
	damaged := []byte(compressed(t, "gzip", lines(100)))
	damaged[len(damaged)-6] ^= 1 // the checksum
	var long strings.Builder     // few lines that compress as jobs do
	for i := range 450_000 {
		fmt.Fprint(&long, i*i, map[bool]string{true: "\n"}[i%10_000 == 0])
	}
	for _, row := range []struct {
		name, coding, body string
		status             int
		code, words        string
	}{
		{"unknown", "br", "x", 415, "unsupported_media_type", "gzip, zstd"},
		{"two codings", "gzip, zstd", "x", 415, "unsupported_media_type", "gzip, zstd"},
		{"not compressed", "gzip", lines(1), 422, "bad_encoding", "not valid gzip"},
		{"not compressed", "zstd", lines(1), 422, "bad_encoding", "not valid zstd"},
		{"cut", "gzip", compressed(t, "gzip", lines(100))[:200], 422, "bad_encoding", "not whole"},
		{"cut", "zstd", compressed(t, "zstd", lines(100))[:200], 422, "bad_encoding", "not whole"},
		{"damaged", "gzip", string(damaged), 422, "bad_encoding", "checksum"},
		{"something behind it", "gzip", compressed(t, "gzip", lines(1)) + "xxxxxxxxxxxxxxxxx", 422, "bad_encoding", "gzip"},
		{"a bomb", "gzip", compressed(t, "gzip", strings.Repeat(" ", 3<<20)), 413, "too_large", "200 times"},
		{"a bomb", "zstd", compressed(t, "zstd", strings.Repeat(" ", 3<<20)), 413, "too_large", "200 times"},
		{"too long", "zstd", compressed(t, "zstd", long.String()), 413, "too_large", "limits.decompressed"},
	} {
		for _, headers := range [][]string{nil, {key + strings.ReplaceAll(row.name+row.coding, " ", "-")}} {
			w := b.ask("POST", jobs, row.body, append(headers, "Content-Encoding: "+row.coding)...)
			wantCode(t, w, row.status, row.code, row.words)
			if got := w.Header().Get("Accept-Encoding"); (got == "gzip, zstd") != (row.status == 415) {
				t.Errorf("%s: Accept-Encoding %q with %d", row.name, got, w.Code)
			}
		}
	}
	if w := b.ask("POST", "/v1/groups", "{}", "Content-Encoding: gzip"); w.Code != 415 {
		t.Errorf("a compressed object: %d", w.Code)
	}
}

// A broken connection is not mistaken for a damaged body, so that clients send it again.
func TestUpload_CompressedBodyCutByTheConnection(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	for _, coding := range []string{"gzip", "zstd"} {
		for err, status := range map[error]int{io.ErrUnexpectedEOF: 400, os.ErrDeadlineExceeded: 408, errors.New("reset"): 400} {
			half := compressed(t, coding, lines(100))[:100]
			w := b.send("POST", "/v1/groups/"+id+"/jobs", io.MultiReader(strings.NewReader(half), iotest.ErrReader(err)), "Content-Encoding: "+coding)
			if want(t, w, status); strings.Contains(w.Body.String(), "bad_encoding") {
				t.Errorf("%s, %v: %s", coding, err, w.Body)
			}
		}
	}
}

// A bomb of gigabytes costs no more than the megabyte after which it is recognized.
func TestDecompress_StopsAtBomb(t *testing.T) {
	t.Parallel()
	frame := compressed(t, "zstd", strings.Repeat("x", 1<<20))
	source := &frames{frame: frame, most: 1 << 20}
	r := httptest.NewRequest(http.MethodPost, "/", source)
	r.Header.Set("Content-Encoding", "zstd")
	release, err := decompress(httptest.NewRecorder(), r, 1<<40, func(int64) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	n, err := io.Copy(io.Discard, r.Body)
	if p, ok := errors.AsType[*ophttp.Problem](err); !ok || p.Status != 413 || n > 2<<20 || source.sent > 256<<10 {
		t.Errorf("%v after %d bytes, of %d that were sent", err, n, source.sent)
	}
	if again, err := io.Copy(io.Discard, r.Body); again > 0 || err == nil {
		t.Errorf("it goes on: %d, %v", again, err)
	}
}

type frames struct {
	frame      string
	rest       string
	sent, most int // bytes
}

func (e *frames) Read(p []byte) (int, error) {
	if e.sent > e.most {
		return 0, io.EOF
	}
	if e.rest == "" {
		e.rest = e.frame
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	e.sent += n
	return n, nil
}
