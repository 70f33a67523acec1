package main

import (
	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/internal/config"
)

var settingFlags = []cli.Flag{
	{Name: "listen", Path: "listen", Usage: "API and dashboard, `ADDR` such as 127.0.0.1:8090"},
}

type loader = cli.Loader[*config.Bulk]

// newRoot builds the command tree. environ has the variables as os.Environ returns them.
func newRoot(environ []string) *cobra.Command {
	load := func(file string, flags map[string]any) (*config.Bulk, error) {
		cfg, err := config.LoadBulk(config.BulkOptions{File: file, Environ: environ, Flags: flags, Check: checkParts})
		if err != nil {
			return nil, err
		}
		if err := checkStart(cfg); err != nil {
			return nil, &config.Problems{List: asProblems(err)}
		}
		return cfg, nil
	}
	root := newServe("bulkworker", load)
	root.Short = "Bulk jobs of many tenants, fair and paced"
	root.Long = `bulkworker takes groups of jobs, keeps them in the store, and runs each job at
least once. Tenants get fair shares, and no job starts faster than the rates that you
set. A job is a POST to a webhook, a mail or a push message.

Try it:  ANTEROOM_PROCESSORS__WEBHOOK__URL=http://127.0.0.1:9000/jobs bulkworker
then:    echo '{"payload":{"n":1}}' | bulkworker submit --type webhook --tenant acme --watch -`

	serveCommand := newServe("serve", load)
	serveCommand.Short = "Serve (the default command)"
	root.AddCommand(serveCommand, newAudit(load), newShards(load), cli.NewCheckConfig(settingFlags, load, tryStore), cli.NewPrintConfig(settingFlags, load),
		cli.NewVersion("bulkworker", version))
	root.AddCommand(clientCommands()...)
	return root
}
