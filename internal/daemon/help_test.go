package daemon

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/cli"
)

// The help of serve lists each flag once, under a title.
func TestEachFlagHasOneTitle(t *testing.T) {
	serve := Command()
	var shown []string
	for _, topic := range []string{"", cli.LimitsTopic} {
		for _, set := range cli.FlagsByTitle(serve.Flags(), topic) {
			if set.Name() == "Flags" {
				t.Errorf("%s has no title", set.FlagUsages())
			}
			set.VisitAll(func(f *pflag.Flag) { shown = append(shown, f.Name) })
		}
	}
	var all []string
	serve.Flags().VisitAll(func(f *pflag.Flag) { all = append(all, f.Name) })
	slices.Sort(shown)
	if !slices.Equal(shown, slices.Sorted(slices.Values(all))) {
		t.Errorf("shown %v, of %v", shown, all)
	}
}

// The help of a limit has its unit and its default.
func TestLimitHelpHasUnitAndDefault(t *testing.T) {
	units := map[string]string{"number": "number of ", "SIZE": "SIZE of ", "time": "time ", "requests": "requests per second", "streams": "per second that end"}
	found := 0
	for _, set := range cli.FlagsByTitle(Command().Flags(), cli.LimitsTopic) {
		set.VisitAll(func(f *pflag.Flag) {
			found++
			unit, usage := pflag.UnquoteUsage(f)
			if want, ok := units[unit]; !ok || !strings.Contains(usage, want) {
				t.Errorf("--%s: the help does not have the unit %q: %s", f.Name, unit, usage)
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
