package dashboard

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"
)

var (
	//go:embed page/dashboard.html
	pageHTML string
	//go:embed page/dashboard.css
	pageCSS string
	//go:embed page/core.js
	coreJS string
	//go:embed page/list.js
	listJS string
	//go:embed page/limits.js
	limitsJS string
	//go:embed page/workers.js
	workersJS string
	//go:embed page/job.js
	jobJS string
	//go:embed page/group.js
	groupJS string

	style  = squeeze(pageCSS)
	script = squeeze("'use strict';\n(() => {\n" + coreJS + listJS + limitsJS + workersJS + jobJS + groupJS + "open();\n})();\n")

	document = template.Must(template.New("dashboard").Parse(squeeze(pageHTML)))
)

// Options of the page; the zero value is valid.
type Options struct {
	// Types are the job types with handlers. The page's example for new users submits webhook if it is among them,
	// otherwise the first.
	Types []string
	// Version is shown in the footer; empty: none.
	Version string
}

// Handler serves the page at /: other paths are 404, methods other than GET and HEAD 405. It needs no token, since
// the page contains no data. Browsers cache it and revalidate each time (ETag).
//
// The page expects the API under /v1 of the same origin.
func Handler(o Options) http.Handler {
	kind := "webhook"
	if len(o.Types) > 0 && !slices.Contains(o.Types, kind) {
		kind = o.Types[0]
	}
	var b bytes.Buffer
	err := document.Execute(&b, map[string]any{
		"Style":   template.CSS(style), //nolint:gosec // a file of this package, not input
		"Script":  template.JS(script), //nolint:gosec // as above
		"Type":    kind,
		"Version": o.Version,
	})
	if err != nil {
		panic("dashboard: its own template does not run: " + err.Error())
	}
	return &page{
		body: b.Bytes(),
		etag: `"` + digest(b.String()) + `"`,
		policy: "default-src 'none'; script-src 'sha256-" + digest(script) + "'; style-src 'sha256-" + digest(style) + "'; connect-src 'self'; " +
			"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
	}
}

// page is one document. Its policy allows only its own script and style, by their hashes.
type page struct {
	body         []byte
	etag, policy string
}

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	switch {
	case r.URL.Path != "/":
		h.Set("Cache-Control", "no-store")
		http.Error(w, "nothing is served at this path", http.StatusNotFound)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Cache-Control", "no-store")
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the dashboard is read with GET", http.StatusMethodNotAllowed)
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", p.policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", p.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(p.body))
}

// squeeze removes indentation, blank lines and comment lines.
func squeeze(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}
