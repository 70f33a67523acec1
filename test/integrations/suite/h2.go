package suite

import (
	"bytes"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// spoofOverH2 sends requests over HTTP/2 whose fields name two hosts: that of a full room, and that of a room that is off. No request for the
// full room may reach the origin.
func spoofOverH2(t *testing.T, s *Site) {
	address := s.start(t, &Setup{Gateways: []*Gateway{s.Gateway}, TLS: true})
	send := func(name string, fields ...hpack.HeaderField) (status string) {
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", address, &tls.Config{ServerName: "off.test", NextProtos: []string{"h2"}, InsecureSkipVerify: true}) //nolint:gosec // the certificate is the test's own
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		for _, f := range fields {
			if err := encoder.WriteField(f); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = conn.Write([]byte(http2.ClientPreface))
		framer := http2.NewFramer(conn, conn)
		framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		_ = framer.WriteSettings()
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
		for {
			frame, err := framer.ReadFrame()
			switch f := frame.(type) {
			case *http2.MetaHeadersFrame:
				return f.PseudoValue("status")
			case *http2.RSTStreamFrame, *http2.GoAwayFrame:
				return "refused"
			}
			if err != nil {
				return "refused"
			}
		}
	}
	request := func(authority string, more ...hpack.HeaderField) []hpack.HeaderField {
		fields := []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: "/seats"}}
		if authority != "" {
			fields = append(fields, hpack.HeaderField{Name: ":authority", Value: authority})
		}
		return append(fields, more...)
	}
	host := func(name string) hpack.HeaderField { return hpack.HeaderField{Name: "host", Value: name} }
	if status := send("a plain request", request("off.test")...); status != "200" {
		t.Fatalf("a plain request over HTTP/2 has status %s", status)
	}
	for name, fields := range map[string][]hpack.HeaderField{
		"full room":                    request("full.test"),
		"authority full, host off":     request("full.test", host("off.test")),
		"authority off, host full":     request("off.test", host("full.test")),
		"host alone, full":             request("", host("full.test")),
		"two hosts, off first":         request("", host("off.test"), host("full.test")),
		"two hosts, full first":        request("", host("full.test"), host("off.test")),
		"path with a host":             append(request("full.test")[:2:2], hpack.HeaderField{Name: ":path", Value: "https://off.test/seats"}, hpack.HeaderField{Name: ":authority", Value: "full.test"}),
		"forged session and authority": request("full.test", hpack.HeaderField{Name: "x-waiting-room-session", Value: "forged"}),
		"X-Forwarded-Host":             request("full.test", hpack.HeaderField{Name: "x-forwarded-host", Value: "off.test"}),
		"X-Original-URI":               request("full.test", hpack.HeaderField{Name: "x-original-uri", Value: "/open"}),
	} {
		n := s.Origin.Count()
		status := send(name, fields...)
		for _, got := range s.Origin.Requests()[n:] {
			if got.Host != "off.test" || forged(&got) {
				t.Errorf("ENTRY: %s: status %s, the origin got %+v", name, status, got)
			}
		}
	}
}
