package settings

import (
	"regexp"
	"strings"

	"github.com/knadh/koanf/providers/env/v2"
)

// envPrefix begins the name of every variable that is read.
const envPrefix = "ANTEROOM_"

// kubernetesVariable matches the variables that Kubernetes sets in every container of a namespace with a Service whose name begins
// with anteroom.
var kubernetesVariable = regexp.MustCompile(`^ANTEROOM_(.*_)?(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// FromKubernetes reports whether Kubernetes may have set a variable. A variable with two underscores is a path of a setting, unless
// its value is the URL of a Service.
func FromKubernetes(name, value string) bool {
	if kubernetesVariable.MatchString(name) {
		return true
	}
	rest := name[len(envPrefix)-1:]
	if strings.Contains(rest, "__") {
		return strings.HasSuffix(rest, "_PORT") && strings.Contains(value, "://")
	}
	return strings.Contains(rest, "_SERVICE_") || strings.Contains(rest, "_PORT")
}

// Variable returns the name of the environment variable that sets s.
func (s Setting) Variable() string { return envName(s.Path) }

// envName returns the variable that sets a path.
func envName(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "__"))
}

// variable finds the setting of a variable and its path. In a map of sections
// the name is the variable's in lower case.
func (sc *schema) variable(name string) (path string, s Setting, ok bool) {
	if s, ok := sc.variables[name]; ok {
		return s.Path, s, true
	}
	for _, s := range sc.settings {
		head, rest, found := strings.Cut(s.Path, ".*.")
		if !found || s.holdsOthers() || strings.Contains(rest, "*") || s.Kind == kindTexts {
			continue
		}
		key, ok := strings.CutPrefix(name, envName(head)+"__")
		if key, found = strings.CutSuffix(key, "__"+envName(rest)[len(envPrefix):]); ok && found && key != "" && !strings.Contains(key, "__") {
			return head + "." + strings.ToLower(key) + "." + rest, s, true
		}
	}
	return "", Setting{}, false
}

// environment returns the koanf provider of the variables; it adds a problem for each variable that no setting has.
func (sc *schema) environment(environ []string, problems *Problems) *env.Env {
	return env.Provider(".", env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			path, s, ok := sc.variable(name)
			switch {
			case ok && strings.HasPrefix(s.Kind, listOf):
				return path, commaList(value)
			case ok:
				return path, plain(value)
			case !FromKubernetes(name, value):
				problems.Add(name, sc.refuseVariable(name))
			}
			return "", nil
		},
	})
}

func (sc *schema) refuseVariable(name string) string {
	for _, other := range programs {
		if _, _, ok := other.variable(name); ok {
			return "is a setting of " + other.program + ", not of " + sc.program + "; give each program an environment of its own"
		}
	}
	for _, s := range sc.settings {
		prefix := envName(s.Path)
		if strings.ContainsAny(s.Path, "[*") || name != prefix && !strings.HasPrefix(name, prefix+"__") {
			continue
		}
		switch {
		case s.Kind == kindSections:
			return "the environment sets single values and comma lists only; write " + s.Path + " in the file"
		case s.Kind == kindNamed:
			return s.Path + " is a map of sections; name a single value in one of them, as " + sc.firstIn(s.Path)
		case strings.HasPrefix(s.Kind, listOf):
			return "the environment cannot set one element of a list; give the whole list, separated by commas, as " + prefix
		case name == prefix:
			return s.Path + " is a section; name one of its settings, as " + sc.firstIn(s.Path)
		}
	}
	names := make([]string, 0, len(sc.variables))
	for _, s := range sc.settings {
		if known := envName(s.Path); sc.variables[known].Path != "" {
			names = append(names, known)
		}
	}
	if near := nearest(name, names); near != "" {
		return "no setting has this variable; did you mean " + near + "?"
	}
	return "no setting has this variable; it is " + envPrefix + " and the path in capitals with __ for each dot, as " + envName("store.url")
}

// firstIn returns the variable of the first setting within a section, or within the
// first section of a map.
func (sc *schema) firstIn(section string) string {
	for _, s := range sc.settings {
		if s.Path == section && s.Kind == kindNamed {
			first, _, _ := strings.Cut(s.Default, ",")
			return envName(section + "." + first + "." + settingsOf(s.goType.Elem(), "")[0].Name)
		}
		if name := envName(s.Path); strings.HasPrefix(s.Path, section+".") && sc.variables[name].Path != "" {
			return name
		}
	}
	return envName(section) + "__…"
}
