package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/anteroom/anteroom/internal/ophttp"
)

//go:embed page/*.html page/*.css page/*.js page/vendor/LICENSE page/vendor/*.css page/vendor/*.js
var pageFiles embed.FS

// pagePath is where the files of the page are served.
const pagePath = "/console/"

// pagePolicy allows the page what this listener serves, and nothing inline. The only frame is the preview of the visitors' page.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// page serves the console: a document, its modules and styles. They contain no data: the modules fetch them as the operator.
type page struct {
	files map[string]pageFile // by path below pagePath
}

type pageFile struct {
	body        []byte
	contentType string
	tag         string // ETag
}

func newPage() (page, error) {
	p := page{files: map[string]pageFile{}}
	err := fs.WalkDir(pageFiles, "page", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := pageFiles.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(body)
		p.files[strings.TrimPrefix(name, "page/")] = pageFile{body, contentType(name), `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
		return nil
	})
	if err == nil && p.files["console.html"].body == nil {
		err = errors.New("the page has no console.html")
	}
	return p, err
}

func contentType(name string) string {
	switch ext := path.Ext(name); ext {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css", ".html":
		return mime.TypeByExtension(ext)
	}
	return "text/plain; charset=utf-8"
}

// ServeHTTP serves the document at / and its files below pagePath.
func (p page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, pagePath)
	if r.URL.Path == "/" {
		name = "console.html"
	}
	f, there := p.files[name]
	if !there {
		ophttp.NewProblem(http.StatusNotFound, "not_found", "the console has no file %s", ophttp.Shorten(name)).Write(w)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.contentType)
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	if name != "console.html" {
		h.Set("Cache-Control", "no-cache") // stored, and compared by its tag: after an upgrade no old module is used
		h.Set("ETag", f.tag)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
}
