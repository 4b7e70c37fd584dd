package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is set by the linker where a release is built.
var release string

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run:   func(cmd *cobra.Command, _ []string) { printVersion(cmd.OutOrStdout()) },
	}
}

func printVersion(w io.Writer) {
	version, api := release, "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		if version == "" {
			version = info.Main.Version
		}
		for _, m := range info.Deps {
			if m.Path == "github.com/envoyproxy/go-control-plane/envoy" {
				api = m.Version
			}
		}
	}
	fmt.Fprintf(w, "chancery %s (Envoy API %s, %s %s/%s)\n", version, api, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
