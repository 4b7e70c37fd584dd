package main

import (
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Each flag of serve is in one place of its help.
func TestTitles(t *testing.T) {
	serve := serveCommand()
	var shown []string
	for _, topic := range []string{"", limits} {
		for _, set := range titles(serve.Flags(), topic) {
			if set.Name() == "Flags" {
				t.Errorf("%s has no title", set.FlagUsages())
			}
			set.VisitAll(func(f *pflag.Flag) { shown = append(shown, f.Name) })
		}
	}
	var all []string
	serve.Flags().VisitAll(func(f *pflag.Flag) { all = append(all, f.Name) })
	if slices.Sort(shown); !slices.Equal(shown, slices.Sorted(slices.Values(all))) {
		t.Errorf("shown %v, of %v", shown, all)
	}
}

// A limit says what it counts and what it is by default.
func TestLimitsTopic(t *testing.T) {
	units := map[string]string{"number": "number of ", "SIZE": "SIZE of ", "time": "time ", "requests": "requests per second", "streams": "per second that end"}
	found := 0
	for _, set := range titles(serveCommand().Flags(), limits) {
		set.VisitAll(func(f *pflag.Flag) {
			found++
			unit, usage := pflag.UnquoteUsage(f)
			if want, ok := units[unit]; !ok || !strings.Contains(usage, want) {
				t.Errorf("--%s: %q is no unit that its text has: %s", f.Name, unit, usage)
			}
			if !regexp.MustCompile(`\(default [0-9]+[a-zA-Z:]*`).MatchString(set.FlagUsages()) || f.DefValue == "0" {
				t.Errorf("--%s: no default", f.Name)
			}
		})
	}
	if found < 20 {
		t.Errorf("%d limits", found)
	}
}

// Values that completion offers are values that the flag takes.
func TestCompletedValues(t *testing.T) {
	root := &cobra.Command{Use: "chancery"}
	root.AddCommand(serveCommand(), checkCommand(), exportCommand())
	found := map[string]bool{}
	for _, cmd := range root.Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			for _, v := range valuesOf[f.Name] {
				found[f.Name] = true
				if !strings.Contains(f.Usage, v) {
					t.Errorf("%s --%s: %q is not in its text", cmd.Name(), f.Name, v)
				}
			}
		})
	}
	for _, l := range valuesOf["log-level"] {
		for _, f := range valuesOf["log-format"] {
			of := logging{level: l, format: f}
			if _, err := of.open(io.Discard); err != nil {
				t.Error(err)
				continue
			}
			of.close()
		}
	}
	if len(found) != len(valuesOf) {
		t.Errorf("flags %v, of %v", found, valuesOf)
	}
}
