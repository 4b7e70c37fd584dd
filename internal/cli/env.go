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

// VariablePrefix begins the name of each environment variable that sets a flag.
const VariablePrefix = "CHANCERY_"

// variable returns the environment variable of a flag, derived from its name.
func variable(flag string) string {
	return VariablePrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// OwnVariable is the annotation of a flag whose environment variable does not have the flag's name. It is
// for a flag whose name has another meaning in other commands.
const OwnVariable = "variable"

// byEnvironment is the annotation of a flag whose value comes from its environment variable.
const byEnvironment = "by environment"

// OnCommandLine reports whether the command line has a flag. A value from the flag's environment variable
// does not count.
func OnCommandLine(cmd *cobra.Command, flag string) bool {
	return cmd.Flags().Changed(flag) && annotation(cmd.Flags().Lookup(flag), byEnvironment) == ""
}

// variableOf returns the environment variable of a flag.
func variableOf(f *pflag.Flag) string {
	return cmp.Or(annotation(f, OwnVariable), variable(f.Name))
}

// BindEnvironment sets each flag that is not on the command line from its environment variable. An empty
// variable counts as unset. Variables without a flag are ignored, because other programs may use the
// prefix. A variable with a probable misspelling gets a warning.
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
	for _, warning := range misspelled(cmd, os.Environ()) {
		fmt.Fprintln(cmd.ErrOrStderr(), "chancery: warning:", warning)
	}
	return first
}

// kubernetesVariable matches the variables that Kubernetes sets for a service named "chancery":
// CHANCERY_SERVICE_HOST, CHANCERY_PORT_18000_TCP_ADDR and more.
var kubernetesVariable = regexp.MustCompile(`^CHANCERY_(\w+_)?(SERVICE_HOST|SERVICE_PORT|PORT)(_|$)`)

// misspelled returns a warning for each variable that is not a variable of any command's flag, but has a
// name similar to a variable of this command.
func misspelled(cmd *cobra.Command, environ []string) (warnings []string) {
	all := map[string]bool{}
	for _, c := range append(cmd.Root().Commands(), cmd) {
		for _, below := range append(c.Commands(), c) {
			below.Flags().VisitAll(func(f *pflag.Flag) { all[variableOf(f)] = true })
		}
	}
	var own []string // without the prefix: with it, all names would be similar
	cmd.Flags().VisitAll(func(f *pflag.Flag) { own = append(own, strings.TrimPrefix(variableOf(f), VariablePrefix)) })
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, VariablePrefix) || value == "" || all[name] || kubernetesVariable.MatchString(name) {
			continue
		}
		if near := protoyaml.Nearest(strings.TrimPrefix(name, VariablePrefix), slices.Values(own)); near != "" {
			warnings = append(warnings, fmt.Sprintf("no flag uses the environment variable %s: did you mean %s?", name, VariablePrefix+near))
		}
	}
	return warnings
}
