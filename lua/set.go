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

// Script is one state transition, ready to be sent.
type Script struct {
	Name    string              // file name without .lua
	SHA     string              // 40 lower-case hex digits
	Source  string              // the text that is sent: header, libraries, body
	Records map[string][]string // fields of each packed record that its libraries declare, by letter
	Replies map[string]string   // reply codes that the script and its libraries declare, by name

	header
	origin []span
}

// span is a run of lines of Source that come from one file.
type span struct {
	first int // in Source, from 1
	file  string
	line  int // in file, from 1
}

// locate returns the file and line in which a line of Source was written. Lines count from 1.
func (s *Script) locate(line int) (file string, at int) {
	i := sort.Search(len(s.origin), func(i int) bool { return s.origin[i].first > line }) - 1
	if i < 0 {
		return s.Name + ".lua", line
	}
	return s.origin[i].file, s.origin[i].line + line - s.origin[i].first
}

// Set is an immutable collection of scripts.
type Set struct {
	byName map[string]*Script
	names  []string
}

// Script returns the script with the given name. It panics on an unknown name, which is a programming error.
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

// Load returns the embedded scripts, which it reads and checks once. Its error names every file that breaks the rules of this
// package; the tests of this package exclude one.
func Load() (*Set, error) { return embedded() }

// MustLoad is Load for tests: it panics on an error.
func MustLoad() *Set {
	set, err := Load()
	if err != nil {
		panic(err)
	}
	return set
}

// LoadFS reads the scripts *.lua at the root of fsys and their libraries lib/*.lua. Its error joins the faults of every file.
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

// readAll returns the text of every file that matches, by base name without .lua.
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

// compose checks a script's header, inserts its libraries between header and body, and folds the constants.
func compose(name, text string, libs map[string]*library) (*Script, error) {
	h, err := parseHeader(name, text)
	if err != nil {
		return nil, err
	}
	lines := strings.SplitAfter(text, "\n")
	head, body := lines[:h.length], lines[h.length:]
	c, err := readConstants(strings.Join(head, ""))
	if err == nil {
		err = c.checkUse(strings.Join(body, ""))
	}
	if err != nil {
		return nil, err
	}
	libraries := make([]*library, len(h.includes))
	for i, lib := range h.includes {
		if libraries[i] = libs[lib]; libraries[i] == nil {
			return nil, fmt.Errorf("INCLUDE %q: there is no lib/%s.lua", lib, lib)
		}
		if strings.HasPrefix(libraries[i].lines[0], "#!") {
			return nil, fmt.Errorf("INCLUDE %q: lib/%s.lua starts with #!, which only a script may", lib, lib)
		}
		if err := c.include(libraries[i].constants); err != nil {
			return nil, fmt.Errorf("lib/%s.lua: %w", lib, err)
		}
	}
	sc := &Script{Name: name, header: h, Records: c.records, Replies: c.replies}
	sc.put(name+".lua", 1, head)
	for i, pruned := range prune(libraries, strings.Join(body, "")) {
		sc.put("lib/"+h.includes[i]+".lua", 1, pruned)
	}
	sc.put(name+".lua", h.length+1, body)
	if sc.Source, err = c.fold(sc.Source); err != nil {
		return nil, err
	}
	sum := sha1.Sum([]byte(sc.Source))
	sc.SHA = hex.EncodeToString(sum[:])
	return sc, nil
}

// put appends lines of a file, from its given line on, to the source.
func (s *Script) put(file string, line int, lines []string) {
	text := strings.Join(lines, "")
	if text == "" {
		return
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	s.origin = append(s.origin, span{first: 1 + strings.Count(s.Source, "\n"), file: file, line: line})
	s.Source += text
}
