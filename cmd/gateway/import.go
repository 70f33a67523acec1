package main

import (
	"cmp"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/internal/cloudflare"
	"github.com/anteroom/anteroom/internal/config"
)

func newImport() *cobra.Command {
	return cli.NewGroup("import", "Convert the configuration of another waiting room", newImportCloudflare())
}

func newImportCloudflare() *cobra.Command {
	var o cloudflare.Options
	cmd := &cobra.Command{
		Use:   "cloudflare FILE",
		Short: "Convert waiting rooms of Cloudflare's API",
		Long: `cloudflare reads waiting rooms as Cloudflare's API returns them, writes a configuration
to stdout that check-config accepts, and lists on stderr every field that it did not
convert, or not exactly: the field, its value, and what to do.

FILE (- for stdin) holds the response to GET /zones/{zone_id}/waiting_rooms, or one
room, or a list of rooms. Events and rules of a room are read from the members
events and rules of the room; docs/migrate/cloudflare.md has a script that adds them.

Exit codes: 0 converted, 2 the file is not JSON or not of this form.`,
		Args: cli.OneArg,
	}
	cmd.Flags().StringVar(&o.Origin, "origin", "", "`URL` of the site, as http://10.0.0.7:8080")
	cmd.Flags().StringVar(&o.DrawSecretFile, "draw-secret-file", "", "`FILE` with the secret of lotteries, at least 32 bytes; without it, events that shuffle are left out")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in, err := cli.Open(args[0], cmd.InOrStdin())
		if err != nil {
			return &cli.UsageError{Err: err}
		}
		defer func() { _ = in.Close() }()
		data, err := io.ReadAll(in)
		if err != nil {
			return &cli.UsageError{Err: fmt.Errorf("%s: %w", args[0], err)}
		}
		imported, err := cloudflare.Read(data, o)
		if err != nil {
			return &cli.UsageError{Err: fmt.Errorf("%s: %w", args[0], err)}
		}
		text, err := imported.YAML()
		if err != nil {
			return err
		}
		if err := checkImported(text); err != nil {
			return err
		}
		if n := len(imported.Notes); n > 0 {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "not converted, or not exactly (%d):\n", n)
		}
		for _, note := range imported.Notes {
			_, _ = fmt.Fprintln(cmd.ErrOrStderr(), " ", note)
		}
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	return cmd
}

// checkImported returns the problems that check-config has with a configuration.
func checkImported(text []byte) error {
	f, err := os.CreateTemp("", "import-*.yaml")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(text)
	if err = cmp.Or(err, f.Close()); err != nil {
		return err
	}
	cfg, err := config.Load(config.Options{File: f.Name(), Check: checkParts})
	if err != nil {
		return err
	}
	if err := checkStart(cfg); err != nil {
		return asProblems(err)
	}
	return nil
}
