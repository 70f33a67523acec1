package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// NewVersion returns the command version. release is the version of a release build, and may be empty.
func NewVersion(program, release string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, revision := BuildVersion(release)
			if revision != "" {
				revision = " " + revision
			}
			// Program, version, revision and platform on one line.
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s%s %s %s/%s\n", program, name, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// BuildVersion returns the release's version, or that of the build, and its revision, with + for local changes.
func BuildVersion(release string) (name, revision string) {
	name = release
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown", ""
	}
	name = cmp.Or(name, info.Main.Version)
	if name == "" {
		name = "(devel)"
	}
	dirty := ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "+"
			}
		}
	}
	if revision == "" {
		return name, ""
	}
	return name, revision + dirty
}
