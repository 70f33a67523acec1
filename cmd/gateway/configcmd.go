package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/internal/config"
)

func newCheckConfig(environ []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check-config --config FILE",
		Short: "Check a configuration and name every problem",
		Long: `check-config reads the configuration as serve would, with flags over environment
over file over defaults. It prints ok, and warnings to stderr; or every problem
to stderr, one a line, and ends with 2.`,
		Args: noArgs,
	}
	flags := addSettings(cmd)
	tryStore := cmd.Flags().Bool("store", false, "try the store as well: reach it, and check its version and settings")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		options, err := flags.options(cmd, environ)
		if err != nil {
			return err
		}
		cfg, err := config.Load(options)
		if err != nil {
			return err
		}
		for _, w := range cfg.Warnings() {
			_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
		}
		if *tryStore {
			if err := checkStore(cmd.Context(), cfg.Store); err != nil {
				return &config.Problems{List: []config.Problem{{Path: "store.url", Message: strings.TrimPrefix(err.Error(), "store.url ")}}}
			}
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "ok")
		return err
	}
	return cmd
}

func newPrintConfig(environ []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "print-config",
		Short: "Print the effective configuration, secrets masked",
		Args:  noArgs,
	}
	flags := addSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		options, err := flags.options(cmd, environ)
		if err != nil {
			return err
		}
		cfg, err := config.Load(options)
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
