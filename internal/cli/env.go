package cli

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
)

// VariablePrefix begins the name of each environment variable that replaces a flag.
const VariablePrefix = "CHANCERY_"

// variable is the environment variable that stands for a flag.
func variable(flag string) string {
	return VariablePrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// OwnVariable is the annotation of a flag whose variable is not that of its name, since a flag of
// other commands has the same name and means something else.
const OwnVariable = "variable"

// byEnvironment is the annotation of a flag whose value came by its variable.
const byEnvironment = "by environment"

// OnCommandLine reports whether a flag was given, and not by its variable.
func OnCommandLine(cmd *cobra.Command, flag string) bool {
	return cmd.Flags().Changed(flag) && annotation(cmd.Flags().Lookup(flag), byEnvironment) == ""
}

// variableOf is the environment variable of a flag.
func variableOf(f *pflag.Flag) string {
	return cmp.Or(annotation(f, OwnVariable), variable(f.Name))
}

// BindEnvironment gives each flag that is not on the command line the value of its
// variable. An empty variable is none. Variables of no flag are passed over, since
// there may be others of that name, but a slip of the pen is told.
func BindEnvironment(cmd *cobra.Command, _ []string) error {
	var first error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value := os.Getenv(variableOf(f))
		if f.Changed || value == "" || f.Name == "help" || first != nil {
			return
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			first = fmt.Errorf("environment variable %s: %w", variableOf(f), ExplainValueError(err))
		}
		Annotate(f, byEnvironment, variableOf(f))
	})
	for _, slip := range slips(cmd, os.Environ()) {
		fmt.Fprintln(cmd.ErrOrStderr(), "chancery: warning:", slip)
	}
	return first
}

// ofKubernetes matches what Kubernetes sets for a service of that name: CHANCERY_SERVICE_HOST,
// CHANCERY_PORT_18000_TCP_ADDR and more.
var ofKubernetes = regexp.MustCompile(`^CHANCERY_(\w+_)?(SERVICE_HOST|SERVICE_PORT|PORT)(_|$)`)

// slips returns a warning for each variable that is of no flag, of whatever command, and nearly
// of one of this command.
func slips(cmd *cobra.Command, environ []string) (warnings []string) {
	all := map[string]bool{}
	for _, c := range append(cmd.Root().Commands(), cmd) {
		for _, below := range append(c.Commands(), c) {
			below.Flags().VisitAll(func(f *pflag.Flag) { all[variableOf(f)] = true })
		}
	}
	var own []string // without the prefix, in which nobody errs
	cmd.Flags().VisitAll(func(f *pflag.Flag) { own = append(own, strings.TrimPrefix(variableOf(f), VariablePrefix)) })
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, VariablePrefix) || value == "" || all[name] || ofKubernetes.MatchString(name) {
			continue
		}
		if near := protoyaml.Nearest(strings.TrimPrefix(name, VariablePrefix), slices.Values(own)); near != "" {
			warnings = append(warnings, fmt.Sprintf("no flag uses the environment variable %s: did you mean %s?", name, VariablePrefix+near))
		}
	}
	return warnings
}
