package lua

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"
)

//go:embed *.lua lib/*.lua
var files embed.FS

// Script is one transition, ready to be sent.
type Script struct {
	Name     string   // file name without .lua
	Keys     []string // names of KEYS, in order
	Args     []string // names of ARGV, in order; the first is "now"
	Variadic bool     // whether the header's ARGV ends in "..."
	Flags    []string // of the #!lua line
	ReadOnly bool     // whether Flags has no-writes
	Includes []string // names of the libraries spliced in
	// Records has the fields of each packed record that the libraries declare, by its letter.
	Records map[string][]string
	SHA     string // 40 lower-case hex digits
	Source  string // what is sent: first line, libraries, file

	origin []span
}

// span says which file the lines of Source from first on come from.
type span struct {
	first int // in Source, from 1
	file  string
	line  int // in file, from 1
}

// Locate maps a line of Source (from 1) to the file and line that it was written in.
func (s *Script) Locate(line int) (file string, at int) {
	i := sort.Search(len(s.origin), func(i int) bool { return s.origin[i].first > line }) - 1
	if i < 0 {
		return s.Name + ".lua", line
	}
	return s.origin[i].file, s.origin[i].line + line - s.origin[i].first
}

// Set is every script of the program. It is not changed after loading and may be shared.
type Set struct {
	byName map[string]*Script
	names  []string
}

// Script returns the script of that name. An unknown name is a programming error and panics.
func (s *Set) Script(name string) *Script {
	sc, ok := s.byName[name]
	if !ok {
		panic(fmt.Sprintf("lua: no script %q; there are %s", name, strings.Join(s.names, ", ")))
	}
	return sc
}

// Names returns the names of all scripts, sorted.
func (s *Set) Names() []string { return slices.Clone(s.names) }

var embedded = sync.OnceValues(func() (*Set, error) { return LoadFS(files) })

// Load returns the embedded scripts, read and checked once. Its error names every file that breaks the rules of this package.
func Load() (*Set, error) { return embedded() }

// MustLoad is Load for tests and package-level variables: it panics on an error, which the tests of this package exclude.
func MustLoad() *Set {
	set, err := Load()
	if err != nil {
		panic(err)
	}
	return set
}

// LoadFS reads the *.lua at the root of fsys, with lib/*.lua as the libraries. Its error joins one for each bad file.
func LoadFS(fsys fs.FS) (*Set, error) {
	texts, err := readAll(fsys, "lib/*.lua")
	if err != nil {
		return nil, err
	}
	libs, err := readLibraries(texts)
	if err != nil {
		return nil, fmt.Errorf("lua: %w", err)
	}
	bodies, err := readAll(fsys, "*.lua")
	if err != nil {
		return nil, err
	}
	set := &Set{byName: make(map[string]*Script, len(bodies))}
	var bad []error
	for name, text := range bodies {
		sc, err := compose(name, text, libs)
		if err != nil {
			bad = append(bad, fmt.Errorf("lua: %s.lua: %w", name, err))
			continue
		}
		set.byName[name] = sc
		set.names = append(set.names, name)
	}
	slices.Sort(set.names)
	slices.SortFunc(bad, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	if err := errors.Join(bad...); err != nil {
		return nil, err
	}
	return set, nil
}

// readAll returns the text of the files that match, by base name without .lua.
func readAll(fsys fs.FS, pattern string) (map[string]string, error) {
	paths, err := fs.Glob(fsys, pattern)
	if err != nil {
		return nil, fmt.Errorf("lua: list %s: %w", pattern, err)
	}
	texts := make(map[string]string, len(paths))
	for _, p := range paths {
		text, err := fs.ReadFile(fsys, p)
		if err != nil {
			return nil, fmt.Errorf("lua: read %s: %w", p, err)
		}
		texts[strings.TrimSuffix(path.Base(p), ".lua")] = string(text)
	}
	return texts, nil
}

// compose checks one file's header and puts the libraries that it asks for between header and body.
func compose(name, text string, libs map[string]*library) (*Script, error) {
	h, err := parseHeader(name, text)
	if err != nil {
		return nil, err
	}
	sc := &Script{
		Name: name, Keys: h.keys, Args: h.args, Variadic: h.variadic,
		Flags: h.flags, ReadOnly: slices.Contains(h.flags, "no-writes"), Includes: h.includes,
	}

	libraries := make([]*library, len(h.includes))
	for i, name := range h.includes {
		if libraries[i] = libs[name]; libraries[i] == nil {
			return nil, fmt.Errorf("INCLUDE %q: there is no lib/%s.lua", name, name)
		}
		if strings.HasPrefix(libraries[i].lines[0], "#!") {
			return nil, fmt.Errorf("INCLUDE %q: lib/%s.lua starts with #!, which only a script may", name, name)
		}
	}
	if sc.Records, err = joinRecords(h.includes, libs); err != nil {
		return nil, err
	}
	lines := strings.SplitAfter(text, "\n")
	var b strings.Builder
	at := 1
	put := func(file string, line int, part []string) {
		if len(part) == 0 {
			return
		}
		sc.origin = append(sc.origin, span{first: at, file: file, line: line})
		joined := strings.Join(part, "")
		if !strings.HasSuffix(joined, "\n") {
			joined += "\n"
		}
		b.WriteString(joined)
		at += strings.Count(joined, "\n")
	}

	file := name + ".lua"
	put(file, 1, lines[:h.lines])
	for i, pruned := range prune(libraries, strings.Join(lines[h.lines:], "")) {
		put("lib/"+h.includes[i]+".lua", 1, pruned)
	}
	put(file, h.lines+1, lines[h.lines:])

	if sc.Source, err = foldFields(b.String(), sc.Records); err != nil {
		return nil, err
	}
	sum := sha1.Sum([]byte(sc.Source))
	sc.SHA = hex.EncodeToString(sum[:])
	return sc, nil
}
