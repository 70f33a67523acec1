// Package docs checks the documentation as a whole.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	inline  = regexp.MustCompile("`([^`]*)`")
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinks_Resolve checks that every relative link in a Markdown file names a file of the repository and, behind #, a heading.
func TestLinks_Resolve(t *testing.T) {
	checked := 0
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(withoutCode(read(t, page)), -1) {
			target := m[1]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			checked++
			path, anchor, _ := strings.Cut(target, "#")
			file := page
			if path != "" {
				file = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, target)
				continue
			}
			if anchor != "" && strings.HasSuffix(file, ".md") && !anchors(read(t, file))[anchor] {
				t.Errorf("%s links to %s, which has no such heading", page, target)
			}
		}
	}
	if checked < 100 {
		t.Errorf("found %d links; want more than 100", checked)
	}
}

// TestDecisions_AreInIndex checks that docs/adr/README.md lists every decision with its title.
func TestDecisions_AreInIndex(t *testing.T) {
	index := read(t, filepath.Join(root, "docs/adr/README.md"))
	decisions, err := filepath.Glob(filepath.Join(root, "docs/adr/0*.md"))
	if err != nil || len(decisions) == 0 {
		t.Fatalf("%d decisions, %v", len(decisions), err)
	}
	for _, file := range decisions {
		title, _, _ := strings.Cut(strings.TrimPrefix(read(t, file), "# "), "\n")
		if want := "[" + title + "](" + filepath.Base(file) + ")"; !strings.Contains(index, want) {
			t.Errorf("docs/adr/README.md lacks %s", want)
		}
	}
}

func pages(t *testing.T) []string {
	var found []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md", "docs/integrations/*.md", "docs/migrate/*.md", "deploy/grafana/*.md", "deploy/helm/anteroom/*.md", "bench/*.md", "test/*/*.md", "examples/*/*.md", "sdk/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, files...)
	}
	return found
}

// anchors returns the anchors that GitHub makes of the headings of a page.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		text := link.ReplaceAllString(strings.ReplaceAll(m[1], "[", ""), "")
		found[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(text), ""), " ", "-")] = true
	}
	return found
}

// withoutCode removes code, in which a link is none.
func withoutCode(page string) string {
	return inline.ReplaceAllString(fence.ReplaceAllString(page, ""), "code")
}

func read(t *testing.T, file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
