// Package http1test has what the tests of gateway/http1, gateway/wire and gateway/proxy share.
package http1test

import "io"

// Packets is a reader that returns Bytes in reads of at most Size.
type Packets struct {
	Bytes []byte
	Size  int
}

// Read returns the next packet, or a part of it.
func (p *Packets) Read(q []byte) (int, error) {
	if len(p.Bytes) == 0 {
		return 0, io.EOF
	}
	n := copy(q, p.Bytes[:min(p.Size, len(p.Bytes))])
	p.Bytes = p.Bytes[n:]
	return n, nil
}

// BrowserGet is a request as browsers send it.
const BrowserGet = "GET /shop/tickets?event=42 HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36\r\nAccept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\nAccept-Encoding: gzip, deflate, br\r\nAccept-Language: en,ko;q=0.5\r\nCookie: wr_sale_pass=eyJhbGciOiJIUzI1NiJ9.e30.sig; cart=17\r\nReferer: https://shop.example/\r\n\r\n"
