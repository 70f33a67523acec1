package settings

import "strings"

// Problem is a mistake in a configuration.
type Problem struct {
	// Path is the setting, as rooms[0].admission.rate; it is empty for the file as a whole.
	Path string
	// Message has the value and what to write instead.
	Message string
}

// String returns the problem on one line.
func (p Problem) String() string {
	line := p.Message
	if p.Path != "" {
		line = p.Path + ": " + p.Message
	}
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(line)
}

// Problems is the error of Load: every mistake.
type Problems struct {
	List []Problem
}

// Error returns one problem a line.
func (p *Problems) Error() string {
	lines := make([]string, len(p.List))
	for i, problem := range p.List {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}

// Add adds a problem.
func (p *Problems) Add(path, message string) {
	p.List = append(p.List, Problem{Path: path, Message: message})
}

// addNew adds the problems of settings that have none yet. A setting whose value could not be read still has its default, and a
// problem with that default would mislead.
func (p *Problems) addNew(list []Problem) {
	known := make(map[string]bool, len(p.List))
	for _, problem := range p.List {
		known[problem.Path] = true
	}
	for _, problem := range list {
		if !known[problem.Path] {
			p.List = append(p.List, problem)
		}
	}
}
