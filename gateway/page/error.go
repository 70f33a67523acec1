package page

import (
	"cmp"
	"html/template"
	"strconv"
)

// Error is the content of the small page that a navigation receives in place of problem+json.
type Error struct {
	Status int    // HTTP status, shown small
	Title  string // one short sentence
	Detail string // what the visitor can do
	Lang   string // of Title and Detail; empty: en
	Link   string // address to continue at; empty: none
}

var errorTemplate = template.Must(template.New("error.html").Parse(errorHTML))

var errorPolicy = "default-src 'none'; style-src " + hash(style) + "; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ErrorPage appends the page for e to dst. It runs no script and sends no request.
func ErrorPage(dst []byte, e *Error) []byte {
	out := appender(dst)
	err := errorTemplate.Execute(&out, map[string]any{
		"Lang": clean(cmp.Or(e.Lang, "en")), "Status": strconv.Itoa(e.Status), "Title": clean(e.Title), "Detail": clean(e.Detail), "Link": clean(e.Link),
		"Style": template.CSS(style), // embedded at build time
	})
	if err != nil {
		panic(err) // strings into an embedded template: every context of it is covered by tests
	}
	return out
}

// ErrorHeader returns the value of the Content-Security-Policy header that ErrorPage needs.
func ErrorHeader() (csp string) { return errorPolicy }
