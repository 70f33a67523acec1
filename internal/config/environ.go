package config

import (
	"regexp"
	"strings"

	"github.com/knadh/koanf/providers/env/v2"
)

// envPrefix begins the name of every variable that is read.
const envPrefix = "ANTEROOM_"

// kubernetesVariable fits what Kubernetes puts into every container of a
// namespace that has a Service whose name begins with anteroom.
var kubernetesVariable = regexp.MustCompile(`^ANTEROOM_(.*_)?(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// isKubernetes also takes what only looks like it, as long as it cannot be
// meant as a path: that needs two underscores.
func isKubernetes(name, value string) bool {
	if kubernetesVariable.MatchString(name) {
		return true
	}
	rest := name[len(envPrefix)-1:]
	if strings.Contains(rest, "__") {
		return strings.HasSuffix(rest, "_PORT") && strings.Contains(value, "://")
	}
	return strings.Contains(rest, "_SERVICE_") || strings.Contains(rest, "_PORT")
}

// envName is the variable that sets a path.
func envName(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "__"))
}

// settable maps every variable that may be set to its setting.
var settable = func() map[string]Setting {
	byName := make(map[string]Setting)
	for _, s := range allSettings {
		if !strings.Contains(s.Path, "[]") && s.Kind != kindSection && s.Kind != kindSections {
			byName[envName(s.Path)] = s
		}
	}
	return byName
}()

// environment is the koanf provider of the variables; what cannot be used
// becomes a problem.
func environment(environ []string, problems *Problems) *env.Env {
	return env.Provider(".", env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			s, ok := settable[name]
			switch {
			case ok && strings.HasPrefix(s.Kind, "list of "):
				return s.Path, commaList(value)
			case ok:
				return s.Path, plain(value)
			case !isKubernetes(name, value):
				problems.add(name, refuseVariable(name))
			}
			return "", nil
		},
	})
}

func refuseVariable(name string) string {
	for _, s := range allSettings {
		prefix := envName(s.Path)
		if strings.Contains(s.Path, "[]") || name != prefix && !strings.HasPrefix(name, prefix+"__") {
			continue
		}
		switch {
		case s.Kind == kindSections:
			return "the environment sets single values and comma lists only; write " + s.Path + " in the file"
		case strings.HasPrefix(s.Kind, "list of "):
			return "the environment cannot set one element of a list; give the whole list, separated by commas, as " + prefix
		case name == prefix:
			return s.Path + " is a section; name one of its settings, as " + firstIn(s.Path)
		}
	}
	names := make([]string, 0, len(settable))
	for _, s := range allSettings {
		if known := envName(s.Path); settable[known].Path != "" {
			names = append(names, known)
		}
	}
	if near := nearest(name, names); near != "" {
		return "no setting has this variable; did you mean " + near + "?"
	}
	return "no setting has this variable; it is " + envPrefix + " and the path in capitals with __ for each dot, as " + envName("store.url")
}

// firstIn is the variable of the first setting within a section.
func firstIn(section string) string {
	for _, s := range allSettings {
		if name := envName(s.Path); strings.HasPrefix(s.Path, section+".") && settable[name].Path != "" {
			return name
		}
	}
	return envName(section) + "__…"
}
