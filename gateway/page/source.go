package page

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"regexp"
	"strings"
)

//go:embed page.html error.html page.css words.js page.js languages/*.json
var sources embed.FS

// The style and the script are the same for every visitor, so that the policy can name them by hash.
var (
	pageHTML  = unindent(source("page.html"))
	errorHTML = unindent(source("error.html"))
	style     = squeezeCSS(source("page.css"))
	script    = "(()=>{\"use strict\"\n" + shorten(squeezeJS(source("words.js")+source("page.js"))) + "})()"
)

func source(name string) string {
	b, err := sources.ReadFile(name)
	if err != nil {
		panic(err) // embedded at build time
	}
	return string(b)
}

func unindent(s string) string {
	var out strings.Builder
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			out.WriteString(line + "\n")
		}
	}
	return strings.ReplaceAll(out.String(), ">\n<", "><")
}

// squeezeJS removes whole-line comments, indentation, the blanks around operators, and line ends inside braces and lists. The
// sources must not have strings over several lines, blanks or quotes in regular expressions, comments behind code, or statements
// that begin with a bracket.
func squeezeJS(s string) string {
	var out strings.Builder
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "//") {
			continue
		}
		if after, ok := strings.CutPrefix(line, "const "); ok {
			line = "let " + after
		}
		squeeze(&out, line, "{}()[]=,;:?&|<>*/%+-!")
		out.WriteByte('\n')
	}
	return strings.NewReplacer(";\n}", "}", "\n}", "}", ";}", "}", ";\n", "\n", "{\n", "{", ",\n", ",").Replace(out.String())
}

// long are names of the script's own variables: nowhere a property, a key or a part of a text, except for keys of messages between tabs.
var long = regexp.MustCompile(`([^\w$."'-])(absence|addEventListener|again|announced|answer|asked|base|beside|busy|button|channel|chime|clock|delay|digits|document|doubted|facts|failures|find|found|gone|heading|level|line|link|load|location|lost|milestone|note|number|opens|other|parts|plan|plural|poll|put|read|recall|refresh|rejoin|relative|remember|rise|root|setTimeout|show|sound|speak|status|steps|take|tell|text|timer|told|unit|values|visit|voice|wake)\b`)

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789$"

// shorten replaces names by ones of two characters, which no name of the sources has. Objects of the browser get such a name
// first.
func shorten(js string) string {
	short := map[string]string{}
	js = long.ReplaceAllStringFunc(js, func(found string) string {
		name := found[1:]
		if short[name] == "" {
			short[name] = "$" + letters[len(short):][:1]
		}
		return found[:1] + short[name]
	})
	var first strings.Builder
	for _, name := range []string{"addEventListener", "document", "location", "setTimeout"} {
		if short[name] != "" {
			first.WriteString("let " + short[name] + "=" + name + "\n")
		}
	}
	return first.String() + js
}

// variable is a CSS variable; their first letters differ.
var variable = regexp.MustCompile(`--(\w)\w+`)

// squeezeCSS removes whole-line comments, line ends and redundant blanks.
func squeezeCSS(s string) string {
	var out strings.Builder
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "/*") && strings.HasSuffix(line, "*/") {
			continue
		}
		squeeze(&out, line, "{};,")
	}
	return variable.ReplaceAllString(strings.NewReplacer(";}", "}", ": ", ":").Replace(out.String()), "--$1")
}

// squeeze appends line without the blanks beside any of marks, strings left as they are.
func squeeze(out *strings.Builder, line, marks string) {
	var quote, last byte
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote != 0:
			if c == quote && last != '\\' {
				quote = 0
			}
		case c == '"' || c == '\'' || c == '`':
			quote = c
		case c == ' ' && i+1 < len(line) && last == line[i+1] && (last == '+' || last == '-'):
			// a + +b must not become a++b
		case c == ' ' && (strings.IndexByte(marks, last) >= 0 || i+1 < len(line) && strings.IndexByte(marks, line[i+1]) >= 0):
			continue
		}
		out.WriteByte(c)
		last = c
	}
}

// hash returns the source expression by which a policy allows an inline style or script.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
