package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/internal/config"
)

// Configuration is a configuration that check-config and print-config can use.
type Configuration interface {
	YAML() ([]byte, error)
	Warnings() []config.Problem
}

// Loader reads a program's configuration.
type Loader[C Configuration] func(file string, flags map[string]any) (C, error)

// NewCheckConfig returns the command check-config; its flag --store calls tryStore.
func NewCheckConfig[C Configuration](flags []Flag, load Loader[C], tryStore func(context.Context, C) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check-config --config FILE",
		Short: "Check a configuration and name every problem",
		Long: `check-config reads the configuration as serve would, with flags over environment
over file over defaults. It prints ok, and warnings to stderr; or every problem
to stderr, one per line, and exits with status 2.`,
		Args: NoArgs,
	}
	settings := AddSettings(cmd, flags)
	store := cmd.Flags().Bool("store", false, "also connect to the store, check its version and settings, and check that this program may write to it")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := Load(cmd, settings, load)
		if err != nil {
			return err
		}
		for _, w := range cfg.Warnings() {
			_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
		}
		if *store {
			if err := tryStore(cmd.Context(), cfg); err != nil {
				path, text := "store.url", err.Error()
				if strings.HasPrefix(text, "store.dir ") {
					path = "store.dir"
				}
				return &config.Problems{List: []config.Problem{{Path: path, Message: strings.TrimPrefix(text, path+" ")}}}
			}
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "ok")
		return err
	}
	return cmd
}

// NewPrintConfig returns the command print-config.
func NewPrintConfig[C Configuration](flags []Flag, load Loader[C]) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "print-config",
		Short: "Print the effective configuration, secrets masked",
		Args:  NoArgs,
	}
	settings := AddSettings(cmd, flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := Load(cmd, settings, load)
		if err != nil {
			return err
		}
		text, err := cfg.YAML()
		if err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	return cmd
}

// Load reads the configuration that the flags of a command name and change.
func Load[C Configuration](cmd *cobra.Command, settings *Settings, load Loader[C]) (C, error) {
	file, flags, err := settings.Read(cmd)
	if err != nil {
		var none C
		return none, err
	}
	return load(file, flags)
}
