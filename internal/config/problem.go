package config

import "strings"

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	// Path names the setting, as rooms[0].admission.rate; it is empty for what
	// concerns the file as a whole.
	Path string
	// Message says what the value is and what to write instead.
	Message string
}

// String is the problem on one line.
func (p Problem) String() string {
	line := p.Message
	if p.Path != "" {
		line = p.Path + ": " + p.Message
	}
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(line)
}

// Problems is the error of Load: everything that is wrong, together.
type Problems struct {
	List []Problem
}

// Error gives one problem a line.
func (p *Problems) Error() string {
	lines := make([]string, len(p.List))
	for i, problem := range p.List {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}

func (p *Problems) add(path, message string) {
	p.List = append(p.List, Problem{Path: path, Message: message})
}

// addNew appends those problems whose setting is not already complained of: a
// value that could not be read has kept its default, and judging that default
// would only confuse.
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
