package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

// Flag sets one setting.
type Flag struct {
	Name  string
	Path  string // in the configuration
	Usage string
}

// Settings are the flags that set configuration values. All are read as text, so that the loader applies the rules of the file.
type Settings struct {
	file  string
	flags []Flag
	given map[string]*string // by path
}

// AddSettings adds --config and the flags to a command.
func AddSettings(cmd *cobra.Command, flags []Flag) *Settings {
	s := &Settings{flags: flags, given: make(map[string]*string)}
	cmd.Flags().StringVar(&s.file, "config", "", "`FILE` with the configuration, in YAML")
	for _, flag := range flags {
		s.given[flag.Path] = cmd.Flags().String(flag.Name, "", flag.Usage)
	}
	return s
}

// Read returns the file, and path and value of those flags that were given.
func (s *Settings) Read(cmd *cobra.Command) (file string, flags map[string]any, err error) {
	if s.file == "" && cmd.Flags().Changed("config") {
		return "", nil, &UsageError{errors.New("--config is empty; give a file, or leave the flag out")}
	}
	flags = make(map[string]any)
	for _, flag := range s.flags {
		if cmd.Flags().Changed(flag.Name) {
			flags[flag.Path] = *s.given[flag.Path]
		}
	}
	return s.file, flags, nil
}
