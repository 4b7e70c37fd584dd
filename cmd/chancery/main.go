// Command chancery is an xDS management server: it gives Envoy, gRPC and other
// xDS clients their configuration, out of a directory of files.
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
	root := &cobra.Command{
		Use:   "chancery",
		Short: "An xDS control plane",
		Long: `Chancery is an xDS control plane. It serves a directory of files in Envoy's own
format (listeners, routes, clusters, endpoints, secrets and all other resource
types) to Envoy, gRPC and any other xDS client, and sends changes whenever a file
changes.

An environment variable can replace each flag: CHANCERY_LISTEN for --listen. If
both are given, the flag is used.`,
		Example: `  chancery check ./config
  chancery serve ./config
  chancery bootstrap envoy | envoy -c /dev/fd/0
  chancery status`,
	}
	serve := daemon.Command()
	root.AddCommand(serve, inspect.Status(), inspect.Get(), inspect.Explain(), inspect.Wait(), inspect.Watch(), endpoints.Command(), inspect.Graph(), inspect.Bugreport(), files.Check(), files.Preview(), inspect.Diff(), inspect.Fetch(), files.Import(), files.Reload(), store.Apply(), store.History(), store.Blame(), store.Rollback(), store.Freeze(), store.Unfreeze(), store.Rollout(), store.Sweep(), files.Export(), files.Agent(), files.Bootstrap(), inspect.Health(), cli.VersionCommand(), cli.PackagingCommand(), cli.LimitsHelp(serve))
	return cli.Run(root, args, stdout, stderr)
}
