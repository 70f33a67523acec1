package console

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"net/http"
)

var (
	//go:embed page/console.html
	pageHTML []byte
	//go:embed page/console.css
	pageCSS []byte
	//go:embed page/console.js
	pageJS []byte
)

// page is the console: one document, whose policy allows only its own script and style, by their hashes.
type page struct {
	body   []byte
	policy string
}

func newPage() (page, error) {
	if bytes.Contains(pageCSS, []byte("</style")) || bytes.Contains(pageJS, []byte("</script")) {
		return page{}, errors.New("the page's style or script contains the end tag of its element")
	}
	body := bytes.Replace(pageHTML, []byte("/* style */"), pageCSS, 1)
	body = bytes.Replace(body, []byte("/* script */"), pageJS, 1)
	return page{
		body: body,
		policy: "default-src 'none'; script-src '" + hash(pageJS) + "'; style-src '" + hash(pageCSS) + "'; connect-src 'self'; img-src data:; " +
			"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
	}, nil
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// ServeHTTP serves the page. It contains no data: its script fetches them with the token.
func (p page) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", p.policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	_, _ = w.Write(p.body) // fails when the client has disconnected
}
