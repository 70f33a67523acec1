package guard

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// The search of the workers, its kernel in pow.wasm for browsers with SIMD, and the script of the page. All three are served as one
// script, so that a page and its workers have the same version and need no further request.
var (
	//go:embed search.js
	search string
	//go:embed pow.wasm
	module []byte
	//go:embed pow.js
	source string
)

// WorkerPolicy is the Content-Security-Policy of a script that runs as a worker: the worker may compile WebAssembly and load nothing.
// The page that loads the script has another policy, which does not allow WebAssembly.
const WorkerPolicy = "default-src 'none'; script-src 'wasm-unsafe-eval'"

// Scripts are the scripts that a guarded page loads, one for each language. They are the same for every room and visitor, and their
// names depend on their content, so that browsers and caches may keep them forever.
type Scripts struct {
	byName map[string][]byte
	names  map[string]string
}

// NewScripts returns the scripts for texts by language.
func NewScripts(texts map[string]map[string]string) *Scripts {
	s := &Scripts{byName: map[string][]byte{}, names: map[string]string{}}
	for lang, words := range texts {
		b, err := json.Marshal(words)
		if err != nil {
			panic(err) // strings always marshal
		}
		script := "\"use strict\";\nconst text = " + string(b) + ";\nconst simd = \"" + base64.StdEncoding.EncodeToString(module) + "\";\n" + strip(search) + strip(source)
		sum := sha256.Sum256([]byte(script))
		name := "pow-" + lang + "-" + hex.EncodeToString(sum[:6]) + ".js"
		s.byName[name], s.names[lang] = []byte(script), name
	}
	return s
}

// strip drops comments of whole lines and indentation.
func strip(js string) string {
	var out strings.Builder
	for line := range strings.Lines(js) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}

// Name of the script in a language, as pow-en-0123456789ab.js.
func (s *Scripts) Name(lang string) string { return s.names[lang] }

// Find returns a script; forever reports whether the name is that of its content. During an upgrade a page of another version requests
// its own script and receives this one.
func (s *Scripts) Find(name string) (script []byte, forever, ok bool) {
	if script, ok = s.byName[name]; ok {
		return script, true, true
	}
	rest, ok := strings.CutPrefix(name, "pow-")
	lang, _, both := strings.Cut(rest, "-")
	if own := s.names[lang]; ok && both && own != "" {
		return s.byName[own], false, true
	}
	return nil, false, false
}
