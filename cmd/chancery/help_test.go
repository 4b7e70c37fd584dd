package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/files"
	"github.com/chancery-xds/chancery/internal/daemon"
)

// Flags accept the values that completion offers.
func TestCompletedValues(t *testing.T) {
	root := &cobra.Command{Use: "chancery"}
	root.AddCommand(daemon.Command(), files.Check(), files.Export())
	found := map[string]bool{}
	for _, cmd := range root.Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			for _, v := range cli.FlagValues[f.Name] {
				found[f.Name] = true
				if !strings.Contains(f.Usage, v) {
					t.Errorf("%s --%s: %q is not in its text", cmd.Name(), f.Name, v)
				}
			}
		})
	}
	for _, l := range cli.FlagValues["log-level"] {
		for _, f := range cli.FlagValues["log-format"] {
			of := cli.LogFlags{Level: l, Format: f}
			if _, err := of.Open(io.Discard); err != nil {
				t.Error(err)
				continue
			}
			of.Close()
		}
	}
	if len(found) != len(cli.FlagValues) {
		t.Errorf("flags %v, of %v", found, cli.FlagValues)
	}
}
