package page

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// inline is the hashes of a page's inline styles and scripts.
type inline struct {
	styles, scripts []string
	polls           bool // by a script, which may poll, or by a reload that is not for browsers without scripts alone
	seen            bool
}

// add records the inline styles and scripts of one rendered page. Another page of the same template must have the same ones: a
// policy by hash cannot allow bytes that differ between visitors.
func (in *inline) add(page string) error {
	var found inline
	without := false // inside <noscript>
	z := html.NewTokenizer(strings.NewReader(page))
	for {
		switch z.Next() {
		case html.ErrorToken:
			if in.seen && (!slices.Equal(in.styles, found.styles) || !slices.Equal(in.scripts, found.scripts)) {
				return errors.New("an inline style or script differs from visitor to visitor, which the Content-Security-Policy cannot allow; put what differs into text or data- attributes")
			}
			found.polls = found.polls || in.polls
			*in = found
			in.seen = true
			return nil
		case html.EndTagToken:
			if z.Token().Data == "noscript" {
				without = false
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			t := z.Token()
			switch {
			case t.Data == "noscript":
				without = true
			case t.Data == "meta" && reloads(t):
				found.polls = found.polls || !without
			case t.Data == "style":
				z.Next()
				found.styles = append(found.styles, hash(string(z.Raw())))
			case t.Data == "script" && runs(t):
				z.Next()
				found.scripts = append(found.scripts, hash(string(z.Raw())))
				found.polls = true
			case t.Data == "script" && has(t, "src"):
				found.polls = true
			}
		}
	}
}

// reloads reports whether a meta element has the browser load the page again.
func reloads(t html.Token) bool {
	return slices.ContainsFunc(t.Attr, func(a html.Attribute) bool {
		return a.Key == "http-equiv" && strings.EqualFold(strings.TrimSpace(a.Val), "refresh")
	})
}

func has(t html.Token, name string) bool {
	return slices.ContainsFunc(t.Attr, func(a html.Attribute) bool { return a.Key == name })
}

// runs reports whether a script element is an inline script, not a block of data or a reference.
func runs(t html.Token) bool {
	kind := "module"
	for _, a := range t.Attr {
		switch a.Key {
		case "src":
			return false
		case "type":
			kind = strings.ToLower(strings.TrimSpace(a.Val))
		}
	}
	return kind == "module" || kind == "" || strings.Contains(kind, "javascript") || strings.Contains(kind, "ecmascript")
}

// ancestors matches the values of frame-ancestors: sources only, without characters that would end the directive or the header.
var ancestors = regexp.MustCompile(`^[A-Za-z0-9'*:/._\[\]-]+( [A-Za-z0-9'*:/._\[\]-]+)*$`)

// policy returns the Content-Security-Policy: only the page's own inline style and script, and polls of this host. An operator's
// own template may show pictures, fonts and styles from this host as well. A guard's script is of this host, runs itself as
// workers, and may load a CAPTCHA. Without a guard, what the page's script loads runs, and no other script of this host.
func policy(in inline, frame string, own bool, guard *Guard) (string, error) {
	frame = cmp.Or(frame, "'none'")
	if !ancestors.MatchString(frame) {
		return "", fmt.Errorf("page.frame_ancestors: %q is not a list of sources; write origins with blanks between them, as \"'self' https://www.example.com\", or leave it empty", frame)
	}
	slices.Sort(in.styles)
	slices.Sort(in.scripts)
	styles, scripts, images := slices.Compact(in.styles), slices.Compact(in.scripts), "data:"
	fonts := ""
	if own {
		styles = append(styles, "'self'")
		images, fonts = "data: 'self'", "; font-src 'self'"
	}
	connect, more := "'self'", ""
	if guard.Script != nil {
		scripts = append(scripts, "'self'")
		more = "; worker-src 'self'"
	} else if len(scripts) > 0 {
		scripts = append(scripts, "'strict-dynamic'") // the page's script loads the script that shows the facts
	}
	if guard.Scripts != "" {
		scripts, styles = append(scripts, guard.Scripts), append(styles, guard.Scripts)
		connect += " " + guard.Scripts
		more += "; frame-src " + guard.Frames
	}
	return "default-src 'none'; script-src " + orNone(scripts) + "; style-src " + orNone(styles) + "; img-src " + images + fonts +
		"; connect-src " + connect + more + "; base-uri 'none'; form-action 'none'; frame-ancestors " + frame, nil
}

func orNone(list []string) string { return cmp.Or(strings.Join(list, " "), "'none'") }
