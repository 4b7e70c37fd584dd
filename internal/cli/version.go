package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/envoy"
)

// In a release build, the linker sets release and commit. Other builds read both from Go's build
// information.
var release, commit string

// VersionCommand returns the command version.
func VersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run:   func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), VersionLine()) },
	}
}

// versionFlag adds the flag --version, because many users try it before the command version.
func versionFlag(root *cobra.Command) {
	root.Version = VersionLine()
	root.SetVersionTemplate("{{.Version}}\n")
	root.Flags().Bool("version", false, "print the version")
}

// Version returns the program's version.
func Version() string { return versionOf(release, buildInfo()) }

// Revision returns the commit from which the program was built, or "" if unknown.
func Revision() string { return revisionOf(commit, buildInfo()) }

// buildInfo returns the build information that Go has written into the program; never nil.
func buildInfo() *debug.BuildInfo {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info
	}
	return new(debug.BuildInfo)
}

func versionOf(release string, info *debug.BuildInfo) string {
	switch {
	case release != "":
		return release
	case info.Main.Version != "":
		return info.Main.Version
	}
	return "(devel)" // as Go prints an unknown version
}

func revisionOf(commit string, info *debug.BuildInfo) string {
	if commit != "" {
		return commit
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

// VersionLine returns the output of the command version.
func VersionLine() string {
	var of string
	if r := Revision(); r != "" {
		of = "commit " + r[:min(len(r), 12)] + ", "
	}
	return fmt.Sprintf("chancery %s (%sEnvoy API %s, %s %s/%s)", Version(), of, envoy.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
