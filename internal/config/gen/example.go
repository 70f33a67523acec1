package main

import (
	"fmt"
	"strings"

	"github.com/anteroom/anteroom/internal/config"
)

// example returns a file with every setting at its default.
func (p *program) example() string {
	var out strings.Builder
	out.WriteString(p.head)
	for _, s := range p.settings {
		if !strings.Contains(s.Path, ".") {
			p.setting(&out, s, "")
		}
	}
	return out.String()
}

func (p *program) setting(out *strings.Builder, s config.Setting, indent string) {
	if isSection(s) || indent == "" {
		out.WriteString(blank(indent))
	}
	comment(out, note(s), indent)
	switch {
	case s.Kind == "section":
		fmt.Fprintf(out, "%s%s:\n", indent, s.Name)
		for _, child := range p.children(s.Path + ".") {
			p.setting(out, child, indent+"  ")
		}
	case s.Kind == "map of sections":
		fmt.Fprintf(out, "%s%s:\n", indent, s.Name)
		for name := range strings.SplitSeq(s.Default, ",") {
			fmt.Fprintf(out, "%s  %s:\n", indent, name)
			for _, child := range p.children(s.Path + ".*.") {
				if child.Name == "kind" {
					child.Default = name
				}
				if child.Only == "" || child.Only == name {
					p.setting(out, child, indent+"    ")
				}
			}
		}
	case p.commented[s.Path]:
		fmt.Fprintf(out, "%s%s: []\n", indent, s.Name)
		marks := make([]string, 0, 8)
		for _, child := range p.children(s.Path + "[].") {
			if !isSection(child) {
				marks = append(marks, child.Name+": "+p.value(child))
			}
		}
		fmt.Fprintf(out, "%s# - {%s}\n", indent, strings.Join(marks, ", "))
	case s.Kind == "list of sections":
		fmt.Fprintf(out, "%s%s:\n", indent, s.Name)
		var item strings.Builder
		for _, child := range p.children(s.Path + "[].") {
			p.setting(&item, child, indent+"    ")
		}
		// The dash is on a line of its own, so that comments may follow it.
		fmt.Fprintf(out, "%s  -\n%s", indent, item.String())
	case s.Optional:
		fmt.Fprintf(out, "%s# %s: 10\n", indent, s.Name)
	default:
		fmt.Fprintf(out, "%s%s: %s\n", indent, s.Name, p.value(s))
	}
}

// blank separates the top-level settings.
func blank(indent string) string {
	if indent == "" {
		return "\n"
	}
	return ""
}

// children returns the settings right below a prefix.
func (p *program) children(prefix string) []config.Setting {
	var all []config.Setting
	for _, s := range p.settings {
		if rest, ok := strings.CutPrefix(s.Path, prefix); ok && !strings.Contains(rest, ".") {
			all = append(all, s)
		}
	}
	return all
}

// value returns a setting's default as YAML.
func (p *program) value(s config.Setting) string {
	if text, ok := p.shown[s.Path]; ok {
		return text
	}
	switch {
	case strings.HasPrefix(s.Kind, "list of ") && s.Default == "":
		return "[]"
	case strings.HasPrefix(s.Kind, "list of "):
		return `["` + strings.ReplaceAll(s.Default, ",", `", "`) + `"]`
	case s.Kind == "map of text":
		return "{}"
	case s.Kind == "boolean" && s.Default == "":
		return "false"
	case s.Kind == "text" && (s.Default == "" || strings.ContainsAny(s.Default, ":/")):
		return `"` + s.Default + `"`
	}
	return s.Default
}

func note(s config.Setting) string {
	text := s.Doc
	if len(s.Enum) > 0 {
		text += " (" + strings.Join(strings.Fields(strings.Join(s.Enum, " ")), " | ") + ")"
	}
	if s.Later != "" {
		text += " " + notAvailable
	}
	return text
}

// lineWidth is where comments wrap.
const lineWidth = 110

func comment(out *strings.Builder, text, indent string) {
	line := indent + "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > lineWidth {
			out.WriteString(line + "\n")
			line = indent + "#"
		}
		line += " " + word
	}
	out.WriteString(line + "\n")
}

// notAvailable is added to settings whose feature is not in this version.
const notAvailable = "Not available in this version."
