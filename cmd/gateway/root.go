package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/redisurl"
	"github.com/anteroom/anteroom/internal/storeopen"
)

var settingFlags = []cli.Flag{
	{Name: "listen", Path: "listen", Usage: "visitors' socket, `ADDR` such as :8080"},
	{Name: "admin-listen", Path: "admin.listen", Usage: "operators' socket, `ADDR` such as 127.0.0.1:9090"},
	{Name: "origin", Path: "origin", Usage: "`URL` of the site; makes one room over all its paths"},
	{Name: "rate", Path: "rate", Usage: "admit `N` visitors a second into that room"},
	{Name: "burst", Path: "burst", Usage: "admit at most `N` visitors at one moment into that room"},
	{Name: "max-active", Path: "max_active", Usage: "have at most `N` visitors admitted and active in that room"},
}

// newRoot builds the command tree. environ has the variables as os.Environ returns them.
func newRoot(environ []string) *cobra.Command {
	load := func(file string, flags map[string]any) (*config.Config, error) {
		cfg, err := config.Load(config.Options{File: file, Environ: environ, Flags: flags, Check: checkParts})
		if err != nil {
			return nil, err
		}
		if err := checkStart(cfg); err != nil {
			return nil, asProblems(err)
		}
		return cfg, nil
	}
	root := newServe("gateway", load)
	root.Short = "A waiting room in front of your site"
	root.Long = `gateway stands in front of a site. While the site has capacity for every visitor, it
is an ordinary reverse proxy. Otherwise visitors get a place in the queue and are
admitted at the rate that you set.

Try it:  gateway --origin http://127.0.0.1:9000 --rate 10`

	serveCommand := newServe("serve", load)
	serveCommand.Short = "Serve (what gateway does without a command)"
	root.AddCommand(serveCommand, cli.NewCheckConfig(settingFlags, load, tryStore), cli.NewPrintConfig(settingFlags, load),
		newKeys(), newAudit(), newImport(), newWebhook(load), newETA(load), newSnippet(load), newVerifyDraw(), newReport(), cli.NewVersion("gateway", version))
	return root
}

// tryStore implements check-config --store.
func tryStore(ctx context.Context, cfg *config.Config) error {
	if err := storeopen.Check(ctx, cfg.Store); err != nil || cfg.Store.URL == "" {
		return err
	}
	client, err := redisurl.Open(cfg.Store.URL, cfg.Store.Timeout)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	core, err := admission.New(coreOptions(cfg, client, nil, slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	if err := core.CheckLayout(ctx); err != nil {
		return fmt.Errorf("store.url %s: %w", redisurl.Mask(cfg.Store.URL), err)
	}
	return nil
}
