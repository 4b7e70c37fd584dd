// Command chancery is an xDS management server: it gives Envoy, gRPC and other
// xDS clients their configuration, out of a directory of files.
package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"
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
	serve := serveCommand()
	root.AddCommand(serve, statusCommand(), getCommand(), explainCommand(), waitCommand(), watchCommand(), endpointsCommand(), graphCommand(), bugreportCommand(), checkCommand(), previewCommand(), diffCommand(), fetchCommand(), importCommand(), reloadCommand(), applyCommand(), historyCommand(), blameCommand(), rollbackCommand(), freezeCommand(), unfreezeCommand(), rolloutCommand(), sweepCommand(), exportCommand(), agentCommand(), bootstrapCommand(), healthCommand(), versionCommand(), packagingCommand(), limitsTopic(serve))
	return execute(root, args, stdout, stderr)
}
