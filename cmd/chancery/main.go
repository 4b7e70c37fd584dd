// Command chancery is an xDS management server. It gives Envoy, gRPC and other xDS clients their
// configuration, from a directory of files, a revision store or an upstream server.
package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/endpoints"
	"github.com/chancery-xds/chancery/internal/cli/files"
	"github.com/chancery-xds/chancery/internal/cli/inspect"
	"github.com/chancery-xds/chancery/internal/cli/store"
	"github.com/chancery-xds/chancery/internal/daemon"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run runs the command line and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	return cli.Run(newRoot(), args, stdout, stderr)
}

// newRoot returns the command chancery with its commands, in the groups of its help.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "chancery",
		Short: "An xDS control plane",
		Long: `Chancery is an xDS control plane. It serves a directory of files in Envoy's own
format (listeners, routes, clusters, endpoints, secrets and all other resource
types) to Envoy, gRPC and any other xDS client, and sends changes whenever a file
changes.

An environment variable can replace each flag of serve: CHANCERY_LISTEN for
--listen. If both are given, the flag is used. Other commands use the variables of
few flags, such as CHANCERY_ADMIN.`,
		Example: `  chancery check ./config
  chancery serve ./config
  chancery bootstrap envoy | envoy -c /dev/fd/0
  chancery status`,
	}
	serve := daemon.Command()
	for _, group := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"run", "Run a server or an agent", []*cobra.Command{serve, files.Reload(), inspect.Health(), files.Agent(), files.State()}},
		{"inspect", "Inspect servers and clients", []*cobra.Command{
			inspect.Status(), inspect.Get(), inspect.Explain(), inspect.Wait(), inspect.Watch(), inspect.Graph(), inspect.Diff(), inspect.Fetch(), inspect.Bugreport(),
		}},
		{"clients", "Command connected clients", []*cobra.Command{inspect.Resync(), inspect.Disconnect()}},
		{"files", "Check and convert files", []*cobra.Command{files.Check(), files.Preview(), files.Import(), files.Export(), files.Bootstrap()}},
		{"store", "Change a store of revisions", []*cobra.Command{
			store.Apply(), store.History(), store.Blame(), store.Rollback(), store.Freeze(), store.Unfreeze(), store.Rollout(), store.Sweep(), store.Command(),
		}},
		{"endpoints", "Register endpoints", []*cobra.Command{endpoints.Command()}},
		{other, "Other", []*cobra.Command{cli.VersionCommand()}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title + ":"})
		for _, cmd := range group.commands {
			cmd.GroupID, cmd.SuggestFor = group.id, guessed[cmd.Name()]
			if cmd.HasSubCommands() { // without RunE, cobra prints the help for an unknown subcommand, with exit code 0
				cmd.Args, cmd.RunE = cobra.NoArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			}
			root.AddCommand(cmd)
		}
	}
	root.SetHelpCommandGroupID(other)
	root.SetCompletionCommandGroupID(other)
	root.AddCommand(cli.PackagingCommand(), cli.LimitsHelp(serve)) // hidden, and a topic of help
	return root
}

// guessed are commands of similar programs, by the command of chancery for the same purpose.
var guessed = map[string][]string{
	"check": {"validate", "lint"}, "explain": {"describe"}, "status": {"proxy-status", "ps"}, "watch": {"logs", "log", "events"},
}

// other is the group of the commands that cobra adds, too.
const other = "other"
