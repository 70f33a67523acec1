package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/internal/config"
)

// newRoot builds the command tree. environ is what os.Environ gives.
func newRoot(environ []string) *cobra.Command {
	root := newServe("gateway", environ)
	root.Short = "A waiting room in front of your site"
	root.Long = `gateway stands in front of a site. While the site can take everyone it is an
ordinary reverse proxy; when it cannot, visitors get a place in line and are let
in at the rate that you set.

Try it:  gateway --origin http://127.0.0.1:9000 --rate 10`
	root.SilenceUsage = true
	root.SuggestionsMinimumDistance = 2
	root.SilenceErrors = true
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	})

	serveCommand := newServe("serve", environ)
	serveCommand.Short = "Serve (what gateway does without a command)"
	root.AddCommand(serveCommand, newCheckConfig(environ), newPrintConfig(environ), newKeys(), newVersion())
	return root
}

// noArgs refuses what is left of the command line, naming the nearest command.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	message := fmt.Sprintf("unknown command or argument %q", args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		message += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return &usageError{fmt.Errorf("%s; see %s --help", message, cmd.CommandPath())}
}

// settings are the flags that shape the configuration. All are read as text,
// so that the loader judges them by the rules of the file.
type settings struct {
	file  string
	flags map[string]*string // path in the configuration to value
}

var settingFlags = []struct{ name, path, usage string }{
	{"listen", "listen", "visitors' socket, `ADDR` such as :8080"},
	{"admin-listen", "admin.listen", "operators' socket, `ADDR` such as 127.0.0.1:9090"},
	{"origin", "origin", "`URL` of the site; makes one room over all of it"},
	{"rate", "rate", "admit `N` visitors a second into that room"},
	{"burst", "burst", "admit at most `N` visitors at one moment into that room"},
	{"max-active", "max_active", "have at most `N` visitors in that room's site at once"},
}

func addSettings(cmd *cobra.Command) *settings {
	s := &settings{flags: make(map[string]*string)}
	cmd.Flags().StringVar(&s.file, "config", "", "`FILE` with the configuration, in YAML")
	for _, flag := range settingFlags {
		s.flags[flag.path] = cmd.Flags().String(flag.name, "", flag.usage)
	}
	return s
}

// options are the loader's, with those flags that were given.
func (s *settings) options(cmd *cobra.Command, environ []string) (config.Options, error) {
	o := config.Options{File: s.file, Environ: environ, Flags: make(map[string]any), Check: checkParts}
	if s.file == "" && cmd.Flags().Changed("config") {
		return o, &usageError{fmt.Errorf("--config is empty; give a file, or leave the flag out")}
	}
	for _, flag := range settingFlags {
		if cmd.Flags().Changed(flag.name) {
			o.Flags[flag.path] = *s.flags[flag.path]
		}
	}
	return o, nil
}
