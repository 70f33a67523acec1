package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bench/site"
)

// faults counts what went wrong, by kind.
type faults struct {
	mu sync.Mutex
	n  map[string]int64
}

func (f *faults) add(n int64, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n == nil {
		f.n = map[string]int64{}
	}
	f.n[why] += n
}

func (f *faults) print(w io.Writer) (sum int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, why := range slices.Sorted(maps.Keys(f.n)) {
		fmt.Fprintf(w, "%6d × %s\n", f.n[why], why)
		sum += f.n[why]
	}
	return sum
}

// work is what visitors do beside the mix.
type work struct {
	addr, pass string
	faults     *faults

	uploads, downloads, left, echoes atomic.Int64
}

// Sizes of what goes up and down; of what is given up, the smaller part has gone by then.
const (
	uploadBytes   = 8 << 20
	downloadBytes = 32 << 20
)

func (w *work) all(sockets int) []func(context.Context) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	todo := []func(context.Context){
		w.again(200*time.Millisecond, "upload", func(ctx context.Context) error { return w.upload(ctx, client) }),
		w.again(200*time.Millisecond, "download", func(ctx context.Context) error { return w.download(ctx, client) }),
		w.again(100*time.Millisecond, "leaving", func(ctx context.Context) error { return w.leave(ctx, client) }),
	}
	for range sockets {
		todo = append(todo, w.again(time.Second, "upgraded", w.talk))
	}
	return todo
}

// again does one thing until ctx ends, with a pause after each.
func (w *work) again(pause time.Duration, what string, do func(context.Context) error) func(context.Context) {
	return func(ctx context.Context) {
		for ctx.Err() == nil {
			if err := do(ctx); err != nil && ctx.Err() == nil {
				w.faults.add(1, fmt.Sprintf("%s: %s", what, err))
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}
}

func (w *work) send(ctx context.Context, client *http.Client, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+w.addr+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Waiting-Room-Pass", w.pass)
	resp, err := client.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return resp, err
}

var material = bytes.Repeat([]byte("0123456789abcdef"), 4096)

func (w *work) upload(ctx context.Context, client *http.Client) error {
	sum := fnv.New64a()
	body := io.LimitReader(&turning{}, uploadBytes)
	resp, err := w.send(ctx, client, http.MethodPost, "/upload", io.TeeReader(body, sum)) // chunked
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if want := fmt.Sprintf("%d %s", uploadBytes, hex.EncodeToString(sum.Sum(nil))); err == nil && string(got) != want {
		err = errors.New("the origin read something else")
	}
	if err == nil {
		w.uploads.Add(1)
	}
	return err
}

// turning repeats material for ever.
type turning struct{ at int }

func (t *turning) Read(p []byte) (int, error) {
	n := copy(p, material[t.at:])
	t.at = (t.at + n) % len(material)
	return n, nil
}

func (w *work) download(ctx context.Context, client *http.Client) error {
	resp, err := w.send(ctx, client, http.MethodGet, fmt.Sprintf("/download?bytes=%d", downloadBytes), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && n != downloadBytes {
		err = fmt.Errorf("%d bytes instead of %d", n, downloadBytes)
	}
	if err == nil {
		w.downloads.Add(1)
	}
	return err
}

// leave gives a request up somewhere: while it is sent, or while it is answered.
func (w *work) leave(ctx context.Context, client *http.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if rand.IntN(2) == 0 { //nolint:gosec // which one it is, is no secret
		body := &until{n: rand.IntN(1 << 20), cancel: cancel} //nolint:gosec // as above
		resp, err := w.send(ctx, client, http.MethodPost, "/upload", body)
		if err == nil {
			_ = resp.Body.Close()
			return errors.New("an upload that was given up has been answered")
		}
	} else {
		resp, err := w.send(ctx, client, http.MethodGet, fmt.Sprintf("/download?bytes=%d", downloadBytes), nil)
		if err != nil {
			return err
		}
		_, _ = io.CopyN(io.Discard, resp.Body, rand.Int64N(1<<20)) //nolint:gosec // as above
		cancel()
		_ = resp.Body.Close()
	}
	w.left.Add(1)
	return nil
}

// until is a body whose sender gives up after n bytes.
type until struct {
	n      int
	cancel context.CancelFunc
}

func (u *until) Read(p []byte) (int, error) {
	if u.n <= 0 {
		u.cancel()
		return 0, context.Canceled
	}
	n := copy(p, material[:min(u.n, len(material))])
	u.n -= n
	return n, nil
}

// talk keeps an upgraded connection for some twenty words, each of which comes back.
func (w *work) talk(ctx context.Context) error {
	conn, err := site.Shake(w.addr, "/socket", w.pass, 30*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	got := make([]byte, len(material))
	for range 20 {
		word := material[:1+rand.IntN(len(material))] //nolint:gosec // any length will do
		if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			return err
		}
		sent := make(chan error, 1)
		go func() {
			_, err := conn.Write(word)
			sent <- err
		}()
		_, err := io.ReadFull(conn, got[:len(word)])
		if err != nil {
			_ = conn.Close() // so that the sender ends, too
		}
		if err := errors.Join(err, <-sent); err != nil {
			return err
		}
		if !bytes.Equal(got[:len(word)], word) {
			return errors.New("another word came back")
		}
		w.echoes.Add(1)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
	return nil
}

func (w *work) print(out io.Writer) {
	fmt.Fprintf(out, "beside the mix: %d uploads of %d MB, %d downloads of %d MB, %d given up, %d echoes\n",
		w.uploads.Load(), uploadBytes>>20, w.downloads.Load(), downloadBytes>>20, w.left.Load(), w.echoes.Load())
}
