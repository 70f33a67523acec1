package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
)

// work is the requests of visitors beside the mix.
type work struct {
	addr, pass string
	table.Counts
	faults table.Causes // wrong responses, those of the mix too

	uploads, downloads, left, echoes atomic.Int64
}

const (
	uploadBytes   = 8 << 20
	downloadBytes = 32 << 20
)

func (w *work) all(sockets int) []func(context.Context) {
	todo := []func(context.Context){
		w.repeat(200*time.Millisecond, "upload", w.upload),
		w.repeat(200*time.Millisecond, "download", w.download),
		w.repeat(100*time.Millisecond, "leaving", w.leave),
	}
	for range sockets {
		todo = append(todo, w.repeat(time.Second, "upgraded", w.talk))
	}
	return todo
}

// repeat calls a function until ctx ends, with a pause after each call.
func (w *work) repeat(pause time.Duration, what string, do func(context.Context) error) func(context.Context) {
	return func(ctx context.Context) {
		for first := true; first || rig.Sleep(ctx, pause); first = false {
			if err := do(ctx); err != nil && ctx.Err() == nil {
				w.Note(w.faults, fmt.Sprintf("%s: %s", what, err), 1)
			}
		}
	}
}

func (w *work) send(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+w.addr+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Waiting-Room-Pass", w.pass)
	resp, err := http.DefaultClient.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return resp, err
}

var material = bytes.Repeat([]byte("0123456789abcdef"), uploadBytes/16)

func (w *work) upload(ctx context.Context) error {
	sum := fnv.New64a()
	resp, err := w.send(ctx, http.MethodPost, "/upload", io.TeeReader(bytes.NewReader(material), sum)) // chunked
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if want := fmt.Sprintf("%d %s", uploadBytes, hex.EncodeToString(sum.Sum(nil))); string(got) != want {
		return errors.New("the origin read a different body")
	}
	w.uploads.Add(1)
	return nil
}

func (w *work) download(ctx context.Context) error {
	resp, err := w.send(ctx, http.MethodGet, fmt.Sprintf("/download?bytes=%d", downloadBytes), nil)
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

// leave abandons a request while it is sent or while its response is read.
func (w *work) leave(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	some := rand.IntN(1 << 20) //nolint:gosec // any length will do
	if rand.IntN(2) == 0 {     //nolint:gosec // either will do
		body := io.MultiReader(bytes.NewReader(material[:some]), canceled{cancel})
		resp, err := w.send(ctx, http.MethodPost, "/upload", body)
		if err == nil {
			_ = resp.Body.Close()
			return errors.New("an abandoned upload received a response")
		}
	} else {
		resp, err := w.send(ctx, http.MethodGet, fmt.Sprintf("/download?bytes=%d", downloadBytes), nil)
		if err != nil {
			return err
		}
		_, _ = io.CopyN(io.Discard, resp.Body, int64(some))
		cancel()
		_ = resp.Body.Close()
	}
	w.left.Add(1)
	return nil
}

// canceled is the end of a body whose sender leaves.
type canceled struct{ cancel context.CancelFunc }

func (c canceled) Read([]byte) (int, error) {
	c.cancel()
	return 0, context.Canceled
}

// talk sends some twenty messages over an upgraded connection and compares the echoes.
func (w *work) talk(ctx context.Context) error {
	conn, err := rig.Upgrade(w.addr, "/socket", w.pass, 30*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	got := make([]byte, 64<<10)
	for range 20 {
		message := material[:1+rand.IntN(len(got))] //nolint:gosec // any length will do
		if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			return err
		}
		sent := make(chan error, 1)
		go func() {
			_, err := conn.Write(message)
			sent <- err
		}()
		_, err := io.ReadFull(conn, got[:len(message)])
		if err != nil {
			_ = conn.Close() // so that Write returns, too
		}
		if err := errors.Join(err, <-sent); err != nil {
			return err
		}
		if !bytes.Equal(got[:len(message)], message) {
			return errors.New("the echo differs")
		}
		w.echoes.Add(1)
		if !rig.Sleep(ctx, time.Second) {
			break
		}
	}
	return nil
}

func (w *work) print(out io.Writer) {
	fmt.Fprintf(out, "beside the mix: %d uploads of %d MB, %d downloads of %d MB, %d given up, %d echoes\n",
		w.uploads.Load(), uploadBytes>>20, w.downloads.Load(), downloadBytes>>20, w.left.Load(), w.echoes.Load())
}
