package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/envoyapi"
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

// version returns the program's version.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && release == "" {
		return info.Main.Version
	}
	return release
}

// revision returns the commit that the program was built from, "" if not known.
func revision() string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

func printVersion(w io.Writer) {
	fmt.Fprintf(w, "chancery %s (Envoy API %s, %s %s/%s)\n", version(), envoyapi.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
