package main

import (
	"fmt"
	"strings"

	"github.com/anteroom/anteroom/internal/config"
)

// reference returns the page that explains every setting.
func (p *program) reference() string {
	var out strings.Builder
	out.WriteString(p.introduction)
	top := []config.Setting{}
	for _, s := range p.settings {
		if !strings.Contains(s.Path, ".") && !isSection(s) {
			top = append(top, s)
		}
	}
	out.WriteString("\n## Top level\n\n")
	p.table(&out, top)

	for _, section := range p.settings {
		if !isSection(section) {
			continue
		}
		prefix := section.Path + "."
		switch section.Kind {
		case "list of sections":
			prefix = section.Path + "[]."
		case "map of sections":
			prefix = section.Path + ".*."
		}
		var settings []config.Setting
		for _, s := range p.settings {
			if rest, ok := strings.CutPrefix(s.Path, prefix); ok && !strings.Contains(rest, ".") && !isSection(s) {
				settings = append(settings, s)
			}
		}
		fmt.Fprintf(&out, "\n## %s\n\n%s", strings.TrimSuffix(prefix, "."), section.Doc)
		if section.Only != "" {
			fmt.Fprintf(&out, " Of kind %s.", section.Only)
		}
		out.WriteString("\n\n")
		p.table(&out, settings)
	}
	return out.String()
}

func (p *program) table(out *strings.Builder, settings []config.Setting) {
	if len(settings) == 0 {
		return
	}
	out.WriteString("| setting | type | default | unit | meaning |\n|---|---|---|---|---|\n")
	for _, s := range settings {
		fmt.Fprintf(out, "| `%s` | %s | %s | %s | %s |\n", s.Path, s.Kind, defaultCell(s), p.unit(s), escape(meaning(s)))
	}
}

func isSection(s config.Setting) bool {
	return s.Kind == "section" || s.Kind == "list of sections" || s.Kind == "map of sections"
}

func defaultCell(s config.Setting) string {
	switch {
	case s.Default != "":
		return "`" + s.Default + "`"
	case s.Optional:
		return "unset"
	case s.Kind == "boolean":
		return "`false`"
	}
	return "empty"
}

func (p *program) unit(s config.Setting) string {
	switch {
	case s.Unit != "":
		return s.Unit
	case s.Kind == "rate":
		return p.rateUnit
	case s.Kind == "size":
		return "bytes"
	case s.Kind == "duration":
		return "time"
	}
	return "–"
}

// meaning returns the doc sentence with the words, bounds and marks of a setting.
func meaning(s config.Setting) string {
	text := s.Doc
	if s.Only != "" {
		text = s.Only + ": " + text
	}
	var words []string
	for _, word := range s.Enum {
		if word != "" {
			words = append(words, "`"+word+"`")
		}
	}
	if len(words) > 0 {
		text += " One of " + strings.Join(words, ", ") + "."
	}
	switch {
	case s.Min != "" && s.Max != "":
		text += " From " + s.Min + " to " + s.Max + "."
	case s.Max != "":
		text += " At most " + s.Max + "."
	}
	if s.Later != "" {
		text += " *" + notAvailable + "*"
	}
	if s.Live {
		text += " **live**"
	}
	switch s.Secret {
	case "true":
		text += " Masked when printed."
	case "url":
		text += " A password in it is masked when printed."
	}
	return text
}

func escape(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "*.example", `\*.example`, "or * for", `or \* for`).Replace(text)
}
