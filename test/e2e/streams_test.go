package e2e

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/http/httputil"
	"os"
	"strings"
	"testing"
	"time"
)

// streamSize is the length of a body in these tests: 2 GiB with STREAM_LONG set.
var streamSize = func() int64 {
	if os.Getenv("STREAM_LONG") != "" {
		return 2 << 30
	}
	return 128 << 20 // twice the allowed growth of the gateway
}()

// content is a body of a size whose every block differs from the one before it.
type content struct {
	block []byte
	sum   uint32
	n     int64
}

func newContent(seed uint64) *content {
	b := make([]byte, 200_003) // a divisor of no buffer
	r := rand.New(rand.NewPCG(seed, seed))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return &content{block: b}
}

// send writes size bytes.
func (c *content) send(w io.Writer, size int64) error {
	for c.n < size {
		binary.LittleEndian.PutUint64(c.block, uint64(c.n))
		p := c.block[:min(int64(len(c.block)), size-c.n)]
		c.sum = crc32.Update(c.sum, crc32.IEEETable, p)
		if _, err := w.Write(p); err != nil {
			return fmt.Errorf("after %d bytes: %w", c.n, err)
		}
		c.n += int64(len(p))
	}
	return nil
}

// sendBody writes a body with its framing.
func (c *content) sendBody(w io.Writer, size int64, chunked bool) error {
	if !chunked {
		return c.send(w, size)
	}
	cw := httputil.NewChunkedWriter(w)
	if err := c.send(cw, size); err != nil {
		return err
	}
	if err := cw.Close(); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\r\n")
	return err
}

// take reads a body and returns its length and checksum.
func take(r *bufio.Reader, size int64, chunked bool) (n int64, sum uint32, err error) {
	body := io.LimitReader(r, size)
	if chunked {
		body = httputil.NewChunkedReader(r)
	}
	buf := make([]byte, 256<<10)
	for {
		m, err := body.Read(buf)
		n += int64(m)
		sum = crc32.Update(sum, crc32.IEEETable, buf[:m])
		if err == io.EOF {
			break
		}
		if err != nil {
			return n, sum, err
		}
	}
	if chunked {
		_, err = r.Discard(2) // the empty trailer section
	}
	return n, sum, err
}

func framingOf(size int64, chunked bool) string {
	if chunked {
		return "Transfer-Encoding: chunked\r\n"
	}
	return fmt.Sprintf("Content-Length: %d\r\n", size)
}

// memoryOf returns the current and the largest resident size of a process, in bytes.
func memoryOf(t testing.TB, pid int) (now, most int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skipf("the memory of a process is not told here: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		var kib int64
		switch name {
		case "VmRSS", "VmHWM":
			if _, err := fmt.Sscan(value, &kib); err != nil {
				t.Fatal(err)
			}
			if name == "VmRSS" {
				now = kib << 10
			} else {
				most = kib << 10
			}
		}
	}
	return now, most
}

// Large bodies pass unchanged in either direction and in both at the same time, on one connection to the gateway and one to the origin.
// The gateway holds only a few buffers of them.
func TestLargeBodies_AreStreamed(t *testing.T) {
	t.Parallel()
	type got struct {
		n   int64
		sum uint32
		err error
	}
	atOrigin, sent := make(chan got, 1), make(chan *content, 1)
	site := newRawSite(t, func(c *rawConn, head string) {
		answered := make(chan error, 1)
		down := strings.Contains(head, "down=")
		go func() { // at once: it does not wait for the body
			if !down {
				answered <- nil
				return
			}
			chunked := strings.Contains(head, "down=chunked")
			c.write("HTTP/1.1 200 OK\r\n" + framingOf(streamSize, chunked) + "\r\n")
			body := newContent(2)
			answered <- body.sendBody(c.TCPConn, streamSize, chunked)
			sent <- body
		}()
		if strings.Contains(head, "up=") {
			n, sum, err := take(c.r, streamSize, strings.Contains(head, "up=chunked"))
			atOrigin <- got{n, sum, err}
		}
		if err := <-answered; err != nil {
			t.Errorf("the answer: %v", err)
		}
		if !down {
			c.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	g := start(t, setup{origin: site.url(), rooms: []string{room(admission(50, 50))}})
	pass := passOf(t, g)
	c := dialRaw(t, g)
	if err := c.SetDeadline(time.Now().Add(10 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	before, _ := memoryOf(t, g.cmd.Process.Pid)
	for _, row := range []string{"up=chunked", "down=chunked", "up=chunked&down=length", "up=length&down=chunked"} {
		begun := time.Now()
		up, down := strings.Contains(row, "up="), strings.Contains(row, "down=")
		head := "GET /body?" + row + " HTTP/1.1\r\nHost: shop.example\r\n" + pass
		if up {
			head = strings.Replace(head, "GET", "POST", 1) + framingOf(streamSize, strings.Contains(row, "up=chunked"))
		}
		c.write(head + "\r\n")
		sending := make(chan error, 1)
		body := newContent(1)
		go func() {
			if !up {
				sending <- nil
				return
			}
			sending <- body.sendBody(c.TCPConn, streamSize, strings.Contains(row, "up=chunked"))
		}()
		c.answer(200)
		if down {
			n, sum, err := take(c.r, streamSize, strings.Contains(row, "down=chunked"))
			if original := <-sent; err != nil || n != streamSize || sum != original.sum {
				t.Fatalf("%s: the client got %d bytes, %v, of %d; checksum %x, want %x", row, n, err, streamSize, sum, original.sum)
			}
		}
		if err := <-sending; err != nil {
			t.Fatalf("%s: %v", row, err)
		}
		if up {
			if o := <-atOrigin; o.err != nil || o.n != streamSize || o.sum != body.sum {
				t.Fatalf("%s: the origin got %d bytes, %v, of %d; checksum %x, want %x", row, o.n, o.err, streamSize, o.sum, body.sum)
			}
		}
		_, most := memoryOf(t, g.cmd.Process.Pid)
		t.Logf("%s: %d MiB in %s; the gateway held %d MiB before and %d MiB at most", row, streamSize>>20, time.Since(begun).Round(time.Millisecond), before>>20, most>>20)
		if most-before >= 64<<20 {
			t.Errorf("%s: the gateway grew from %d to %d bytes", row, before, most)
		}
	}
	if n := len(site.requests()); n != 4 {
		t.Errorf("the origin saw %d requests, want 4", n)
	}
}
