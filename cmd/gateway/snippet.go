package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/snippet"
)

func newSnippet(load cli.Loader[*config.Config]) *cobra.Command {
	o := snippet.Options{PassCookie: func(room string, secure bool) string { return client.NamesOf(room, secure).Pass }}
	cmd := &cobra.Command{
		Use:   "snippet " + strings.Join(snippet.Proxies(), "|") + " --config FILE",
		Short: "Print the configuration of another proxy that asks this gateway about requests",
		Long: `snippet prints the configuration with which a proxy asks the gateway about each request
and sends /.waiting-room/ to the visitors' socket. Addresses and hosts come from the
gateway's configuration. If the gateway listens on all addresses, the proxy reaches it at
127.0.0.1 unless a flag names another address. docs/check.md describes checks.`,
		Args: cli.OneArg,
	}
	settings := cli.AddSettings(cmd, nil)
	flags := cmd.Flags()
	flags.StringVar(&o.Room, "room", "", "print the hosts of the room `ID` only")
	flags.StringSliceVar(&o.Check, "check", nil, "`ADDR` for checks, such as 10.0.0.5:8085; once for each gateway")
	flags.StringSliceVar(&o.Visitors, "visitors", nil, "`ADDR` of the visitors' socket, such as 10.0.0.5:8080; once for each gateway")
	flags.StringVar(&o.Origin, "origin", "", "`URL` of the site behind the proxy, such as http://10.0.0.9:9000")
	flags.BoolVar(&o.Open, "open", false, "let requests pass while no gateway answers")
	flags.BoolVar(&o.Lua, "lua", false, "haproxy: print the file for lua-load")
	flags.StringVar(&o.Verify, "verify", "", "haproxy: verify passes with the public key in `FILE` on its machine, and send no checks")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := cli.Load(cmd, settings, load)
		if err != nil {
			return err
		}
		o.Proxy = args[0]
		if err := snippet.Write(cmd.OutOrStdout(), cfg, o); err != nil {
			return &cli.UsageError{Err: err}
		}
		return nil
	}
	return cmd
}
