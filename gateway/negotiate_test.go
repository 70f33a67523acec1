package gateway

import "testing"

func TestWhoAsks(t *testing.T) {
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
	for _, row := range []struct {
		name   string
		method string
		header [][2]string
		want   asker
	}{
		{"preflight", "OPTIONS", [][2]string{{"Access-Control-Request-Method", "POST"}}, preflight},
		{"plain options", "OPTIONS", nil, apiClient},
		{"prefetch", "GET", [][2]string{{"Sec-Purpose", "prefetch"}, {"Accept", browser}}, prefetch},
		{"prerender", "GET", [][2]string{{"Sec-Purpose", "prefetch;prerender"}}, prefetch},
		{"websocket", "GET", [][2]string{{"Upgrade", "websocket"}}, upgrade},
		{"document", "GET", [][2]string{{"Sec-Fetch-Dest", "document"}, {"Accept", "application/json"}}, navigation},
		{"iframe", "GET", [][2]string{{"Sec-Fetch-Dest", "iframe"}}, navigation},
		{"fetch", "GET", [][2]string{{"Sec-Fetch-Dest", "empty"}, {"Accept", browser}}, apiClient},
		{"image by destination", "GET", [][2]string{{"Sec-Fetch-Dest", "image"}, {"Accept", browser}}, subresource},
		{"frame", "GET", [][2]string{{"Sec-Fetch-Dest", "frame"}}, subresource},
		{"browser", "GET", [][2]string{{"Accept", browser}}, navigation},
		{"none", "GET", nil, apiClient},
		{"empty", "GET", [][2]string{{"Accept", ""}}, apiClient},
		{"anything", "GET", [][2]string{{"Accept", "*/*"}}, apiClient},
		{"json", "GET", [][2]string{{"Accept", "application/json"}}, apiClient},
		{"json with charset", "GET", [][2]string{{"Accept", "application/json; charset=utf-8"}}, apiClient},
		{"a json of its own", "GET", [][2]string{{"Accept", "application/vnd.shop+json"}}, apiClient},
		{"application", "GET", [][2]string{{"Accept", "application/*"}}, apiClient},
		{"text", "GET", [][2]string{{"Accept", "text/*"}}, navigation},
		{"axios", "GET", [][2]string{{"Accept", "application/json, text/plain, */*"}}, apiClient},
		{"html less than json", "GET", [][2]string{{"Accept", "text/html;q=0.5, application/json"}}, apiClient},
		{"json less than html", "GET", [][2]string{{"Accept", "text/html, application/json;q=0.9"}}, navigation},
		{"both alike", "GET", [][2]string{{"Accept", "text/html, application/json"}}, apiClient},
		{"html not at all", "GET", [][2]string{{"Accept", "text/html;q=0, */*;q=0.1"}}, apiClient},
		{"two lines", "GET", [][2]string{{"Accept", "image/png;q=0.1"}, {"Accept", "TEXT/HTML"}}, navigation},
		{"image", "GET", [][2]string{{"Accept", "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"}}, subresource},
		{"style", "GET", [][2]string{{"Accept", "text/css,*/*;q=0.1"}}, subresource},
		{"events", "GET", [][2]string{{"Accept", "text/event-stream"}}, subresource},
		{"xml", "GET", [][2]string{{"Accept", "application/xml"}}, subresource},
		{"preflight with a body", "OPTIONS", [][2]string{{"Access-Control-Request-Method", "POST"}, {"Content-Length", "1"}}, apiClient},
		{"preflight with chunks", "OPTIONS", [][2]string{{"Access-Control-Request-Method", "POST"}, {"Transfer-Encoding", "chunked"}}, apiClient},
		{"preflight without a body", "OPTIONS", [][2]string{{"Access-Control-Request-Method", "POST"}, {"Content-Length", "0"}}, preflight},
		{"preflight that upgrades", "OPTIONS", [][2]string{{"Access-Control-Request-Method", "POST"}, {"Upgrade", "websocket"}}, upgrade},
		{"preflight of another method", "OPTIONS", [][2]string{{"Access-Control-Request-Method", "POST"}, {"X-HTTP-Method-Override", "POST"}}, apiClient},
		{"image that writes", "POST", [][2]string{{"Sec-Fetch-Dest", "image"}, {"Accept", "image/*"}}, apiClient},
		{"form as an image", "POST", [][2]string{{"Sec-Fetch-Dest", "image"}, {"Accept", browser}}, navigation},
		{"image that is deleted", "DELETE", [][2]string{{"Sec-Fetch-Dest", "image"}}, apiClient},
		{"image with a body", "GET", [][2]string{{"Sec-Fetch-Dest", "image"}, {"Content-Length", "1"}}, apiClient},
		{"image of another method", "GET", [][2]string{{"Sec-Fetch-Dest", "image"}, {"X_HTTP_Method", "POST"}}, apiClient},
		{"HEAD of an image", "HEAD", [][2]string{{"Sec-Fetch-Dest", "image"}}, subresource},
		{"media by accept that writes", "POST", [][2]string{{"Accept", "image/png"}}, apiClient},
		{"prefetch that writes", "POST", [][2]string{{"Sec-Purpose", "prefetch"}, {"Accept", browser}}, navigation},
		{"broken weight", "GET", [][2]string{{"Accept", "text/html;q=x, application/json;q=0.1"}}, apiClient},
		{"weight too large", "GET", [][2]string{{"Accept", "text/html;q=1.5, application/json;q=0.1"}}, apiClient},
	} {
		if got := who(request(t, row.method, "192.0.2.1", row.header...)); got != row.want {
			t.Errorf("%s: %d, want %d", row.name, got, row.want)
		}
	}
}

func FuzzAccept(f *testing.F) {
	for _, s := range []string{"*/*", "text/html;q=0.5,application/json", ";;,", "a/b;q=", "text/html;Q=1.000", ",", "q=1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		switch a := byAccept([][]byte{[]byte(s)}); a {
		case apiClient, navigation, subresource:
		default:
			t.Fatalf("%q: %d", s, a)
		}
		if q := quality([]byte(s)); q < 0 || q > 1000 {
			t.Fatalf("%q: weight %d", s, q)
		}
	})
}
