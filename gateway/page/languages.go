package page

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/text/language"
)

// text is one sentence in its plural forms, keyed by CLDR category. "other" is always there.
type text map[string]string

func (t *text) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*t = text{"other": one}
		return nil
	}
	return json.Unmarshal(b, (*map[string]string)(t))
}

// loadLanguages reads every languages/*.json of files.
func loadLanguages(files fs.FS) (map[string]*words, error) {
	names, err := fs.Glob(files, "languages/*.json")
	if err != nil {
		return nil, err
	}
	all := make(map[string]*words, len(names))
	for _, name := range names {
		b, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		code := strings.TrimSuffix(path.Base(name), ".json")
		tag, err := language.Parse(code)
		if err != nil {
			return nil, fmt.Errorf("%s: the file's name is no BCP 47 language tag: %w", name, err)
		}
		var texts map[string]text
		if err := json.Unmarshal(b, &texts); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all[code] = newWords(tag, texts)
	}
	return all, nil
}

var builtin = sync.OnceValues(func() (map[string]*words, error) { return loadLanguages(sources) })

// negotiator picks the language of an Accept-Language header and caches the result, because a few hundred headers make up nearly
// all requests.
type negotiator struct {
	matcher language.Matcher
	mu      sync.RWMutex
	known   map[string]int
}

// maxKnown bounds the cached headers; maxHeader the length that is parsed.
const (
	maxKnown  = 512
	maxHeader = 256
)

func newNegotiator(tags []language.Tag) *negotiator {
	return &negotiator{matcher: language.NewMatcher(tags), known: make(map[string]int)}
}

// pick returns the index of the tag that suits header best; 0, the default, where none does.
func (n *negotiator) pick(header string) int {
	if header == "" || len(header) > maxHeader {
		return 0
	}
	n.mu.RLock()
	index, ok := n.known[header]
	n.mu.RUnlock()
	if ok {
		return index
	}
	if wanted, _, err := language.ParseAcceptLanguage(header); err == nil {
		if _, i, confidence := n.matcher.Match(wanted...); confidence > language.No {
			index = i
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.known) >= maxKnown {
		clear(n.known)
	}
	n.known[strings.Clone(header)] = index
	return index
}

// choose returns the languages of names, the first being the default; all, English first, without names.
func choose(all map[string]*words, names []string) ([]*words, error) {
	codes := sortedKeys(all)
	if len(names) == 0 {
		names = slices.Clone(codes)
		if i := slices.Index(names, "en"); i > 0 {
			names = slices.Insert(slices.Delete(names, i, i+1), 0, "en")
		}
	}
	chosen := make([]*words, 0, len(names))
	for _, name := range names {
		w, ok := all[name]
		if !ok {
			return nil, fmt.Errorf("page.languages: %q is not among %s; leave it out, or add languages/%[1]s.json", name, strings.Join(codes, ", "))
		}
		chosen = append(chosen, w)
	}
	return chosen, nil
}
