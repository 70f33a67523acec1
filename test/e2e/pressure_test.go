package e2e

import (
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// stuff writes until the other side takes nothing for a second, or most bytes.
func (c *rawConn) stuff(most int64) (n int64, sum uint32) {
	c.t.Helper()
	block := newContent(3).block
	for n < most {
		if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
			c.t.Error(err)
		}
		m, err := c.Write(block)
		n += int64(m)
		sum = crc32.Update(sum, crc32.IEEETable, block[:m])
		if err != nil {
			break
		}
	}
	if err := c.SetWriteDeadline(time.Time{}); err != nil {
		c.t.Error(err)
	}
	return n, sum
}

// inSockets returns the bytes that the kernel buffers for the connections to these ports, at both ends.
func inSockets(t *testing.T, ports ...int) (n int64) {
	t.Helper()
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Skipf("what sockets hold is not told here: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		var slot, local, remote, state string
		var tx, rx int64
		if _, err := fmt.Sscan(strings.Join(strings.Fields(line)[:4], " "), &slot, &local, &remote, &state); err != nil || state != "01" {
			continue
		}
		if _, err := fmt.Sscanf(strings.Fields(line)[4], "%x:%x", &tx, &rx); err != nil {
			t.Fatal(err)
		}
		for _, port := range ports {
			if end := fmt.Sprintf(":%04X", port); strings.HasSuffix(local, end) || strings.HasSuffix(remote, end) {
				n += tx + rx
			}
		}
	}
	return n
}

func portOf(t *testing.T, addr string) int {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A receiver that does not read stops its sender: the gateway buffers little and applies back pressure.
func TestBackPressure(t *testing.T) {
	const most, held = 256 << 20, 256 << 10
	const huge = "Content-Length: 1099511627776\r\n"
	type pushed struct {
		n   int64
		sum uint32
	}
	for _, row := range []string{"down", "up", "tunnel down", "tunnel up"} {
		t.Run(row, func(t *testing.T) {
			t.Parallel()
			origin, sent := make(chan *rawConn, 1), make(chan pushed, 1)
			site := newRawSite(t, func(c *rawConn, _ string) {
				switch {
				case strings.HasPrefix(row, "tunnel"):
					c.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
				case row == "down":
					c.write("HTTP/1.1 200 OK\r\n" + huge + "\r\n")
				}
				if strings.HasSuffix(row, "down") {
					n, sum := c.stuff(most)
					sent <- pushed{n, sum}
				} else {
					origin <- c
				}
				<-t.Context().Done()
			})
			g := start(t, setup{origin: site.url(), rooms: []string{room(admission(50, 50))}})
			head := "GET /stuff HTTP/1.1\r\nHost: shop.example\r\n" + passOf(t, g)
			switch {
			case strings.HasPrefix(row, "tunnel"):
				head += "Connection: Upgrade\r\nUpgrade: websocket\r\n"
			case row == "up":
				head = strings.Replace(head, "GET", "POST", 1) + huge
			}
			c := dialRaw(t, g)
			c.write(head + "\r\n")
			if strings.HasPrefix(row, "tunnel") {
				c.answer(101)
			} else if row == "down" {
				c.answer(200)
			}
			var p pushed
			reader := c
			if strings.HasSuffix(row, "up") {
				p.n, p.sum = c.stuff(most)
				reader = <-origin
			} else {
				p = <-sent
			}
			if p.n >= most {
				t.Fatalf("%d bytes were taken though nobody read", p.n)
			}
			kernel := inSockets(t, portOf(t, g.addr), portOf(t, site.ln.Addr().String()))
			if n := p.n - kernel - int64(reader.r.Buffered()); n > held {
				t.Errorf("of %d bytes sockets hold %d and the reader %d: the gateway holds %d, want at most %d", p.n, kernel, reader.r.Buffered(), n, held)
			} else {
				t.Logf("%d bytes were taken; sockets hold %d and the reader %d: the gateway holds %d", p.n, kernel, reader.r.Buffered(), n)
			}
			// Nothing was lost meanwhile.
			if err := reader.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			sum := crc32.NewIEEE()
			if n, err := io.CopyN(sum, reader.r, p.n); err != nil || sum.Sum32() != p.sum {
				t.Errorf("%d bytes of %d arrived, %v; checksum %x, want %x", n, p.n, err, sum.Sum32(), p.sum)
			}
		})
	}
}
