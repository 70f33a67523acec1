package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the release build: -ldflags "-X main.version=v1.2.3".
var version = ""

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine())
			return err
		},
	}
}

// versionLine is program, version, revision and platform on one line.
func versionLine() string {
	name, revision := buildVersion()
	if revision != "" {
		revision = " " + revision
	}
	return fmt.Sprintf("gateway %s%s %s %s/%s", name, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// buildVersion is the release's version, or what the build knows of itself,
// and the revision that it was built from, with + for local changes.
func buildVersion() (name, revision string) {
	name = version
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown", ""
	}
	if name == "" {
		name = info.Main.Version
	}
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
