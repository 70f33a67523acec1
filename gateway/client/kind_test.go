package client

import (
	"testing"

	"github.com/anteroom/anteroom/gateway/client/clienttest"
)

func TestKindOf(t *testing.T) {
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
	for _, row := range []struct {
		name   string
		method string
		header [][2]string
		want   Kind
	}{
		{"preflight", "OPTIONS", [][2]string{{"Access-Control-Request-Method", "POST"}}, Preflight},
		{"plain options", "OPTIONS", nil, API},
		{"prefetch", "GET", [][2]string{{"Sec-Purpose", "prefetch"}, {"Accept", browser}}, Prefetch},
		{"prerender", "GET", [][2]string{{"Sec-Purpose", "prefetch;prerender"}}, Prefetch},
		{"websocket", "GET", [][2]string{{"Upgrade", "websocket"}}, Upgrade},
		{"document", "GET", [][2]string{{"Sec-Fetch-Dest", "document"}, {"Accept", "application/json"}}, Navigation},
		{"iframe", "GET", [][2]string{{"Sec-Fetch-Dest", "iframe"}}, Navigation},
		{"fetch", "GET", [][2]string{{"Sec-Fetch-Dest", "empty"}, {"Accept", browser}}, API},
		{"image by destination", "GET", [][2]string{{"Sec-Fetch-Dest", "image"}, {"Accept", browser}}, Subresource},
		{"frame", "GET", [][2]string{{"Sec-Fetch-Dest", "frame"}}, Subresource},
		{"browser", "GET", [][2]string{{"Accept", browser}}, Navigation},
		{"none", "GET", nil, API},
		{"empty", "GET", [][2]string{{"Accept", ""}}, API},
		{"anything", "GET", [][2]string{{"Accept", "*/*"}}, API},
		{"json", "GET", [][2]string{{"Accept", "application/json"}}, API},
		{"json with charset", "GET", [][2]string{{"Accept", "application/json; charset=utf-8"}}, API},
		{"a json of its own", "GET", [][2]string{{"Accept", "application/vnd.shop+json"}}, API},
		{"application", "GET", [][2]string{{"Accept", "application/*"}}, API},
		{"text", "GET", [][2]string{{"Accept", "text/*"}}, Navigation},
		{"axios", "GET", [][2]string{{"Accept", "application/json, text/plain, */*"}}, API},
		{"html less than json", "GET", [][2]string{{"Accept", "text/html;q=0.5, application/json"}}, API},
		{"json less than html", "GET", [][2]string{{"Accept", "text/html, application/json;q=0.9"}}, Navigation},
		{"both alike", "GET", [][2]string{{"Accept", "text/html, application/json"}}, API},
		{"html not at all", "GET", [][2]string{{"Accept", "text/html;q=0, */*;q=0.1"}}, API},
		{"two lines", "GET", [][2]string{{"Accept", "image/png;q=0.1"}, {"Accept", "TEXT/HTML"}}, Navigation},
		{"image", "GET", [][2]string{{"Accept", "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"}}, Subresource},
		{"style", "GET", [][2]string{{"Accept", "text/css,*/*;q=0.1"}}, Subresource},
		{"events", "GET", [][2]string{{"Accept", "text/event-stream"}}, Subresource},
		{"xml", "GET", [][2]string{{"Accept", "application/xml"}}, Subresource},
		{"preflight with a body", "OPTIONS", [][2]string{{"Access-Control-Request-Method", "POST"}, {"Content-Length", "1"}}, API},
		{"preflight with chunks", "OPTIONS", [][2]string{{"Access-Control-Request-Method", "POST"}, {"Transfer-Encoding", "chunked"}}, API},
		{"preflight without a body", "OPTIONS", [][2]string{{"Access-Control-Request-Method", "POST"}, {"Content-Length", "0"}}, Preflight},
		{"preflight that upgrades", "OPTIONS", [][2]string{{"Access-Control-Request-Method", "POST"}, {"Upgrade", "websocket"}}, Upgrade},
		{"preflight of another method", "OPTIONS", [][2]string{{"Access-Control-Request-Method", "POST"}, {"X-HTTP-Method-Override", "POST"}}, API},
		{"image that writes", "POST", [][2]string{{"Sec-Fetch-Dest", "image"}, {"Accept", "image/*"}}, API},
		{"form as an image", "POST", [][2]string{{"Sec-Fetch-Dest", "image"}, {"Accept", browser}}, Navigation},
		{"image that is deleted", "DELETE", [][2]string{{"Sec-Fetch-Dest", "image"}}, API},
		{"image with a body", "GET", [][2]string{{"Sec-Fetch-Dest", "image"}, {"Content-Length", "1"}}, API},
		{"image of another method", "GET", [][2]string{{"Sec-Fetch-Dest", "image"}, {"X_HTTP_Method", "POST"}}, API},
		{"HEAD of an image", "HEAD", [][2]string{{"Sec-Fetch-Dest", "image"}}, Subresource},
		{"media by accept that writes", "POST", [][2]string{{"Accept", "image/png"}}, API},
		{"prefetch that writes", "POST", [][2]string{{"Sec-Purpose", "prefetch"}, {"Accept", browser}}, Navigation},
		{"broken weight", "GET", [][2]string{{"Accept", "text/html;q=x, application/json;q=0.1"}}, API},
		{"weight too large", "GET", [][2]string{{"Accept", "text/html;q=1.5, application/json;q=0.1"}}, API},
	} {
		if got := KindOf(clienttest.Request(t, row.method, "192.0.2.1", row.header...)); got != row.want {
			t.Errorf("%s: %d, want %d", row.name, got, row.want)
		}
	}
}

func FuzzAccept(f *testing.F) {
	for _, s := range []string{"*/*", "text/html;q=0.5,application/json", ";;,", "a/b;q=", "text/html;Q=1.000", ",", "q=1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		switch a := kindByAccept([][]byte{[]byte(s)}); a {
		case API, Navigation, Subresource:
		default:
			t.Fatalf("%q: %d", s, a)
		}
		if q := quality([]byte(s)); q < 0 || q > 1000 {
			t.Fatalf("%q: weight %d", s, q)
		}
	})
}
