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

// ClientVariables gives the certificate of an xDS client variables of its own. In serve, the flags with these names
// are the server's certificate.
func ClientVariables(f *pflag.FlagSet) {
	Annotate(f.Lookup("tls-cert"), OwnVariable, VariablePrefix+"CLIENT_TLS_CERT")
	Annotate(f.Lookup("tls-key"), OwnVariable, VariablePrefix+"CLIENT_TLS_KEY")
}

// OnCommandLine reports whether the command line has a flag. A value from the flag's environment variable
// does not count.
func OnCommandLine(cmd *cobra.Command, flag string) bool {
	return cmd.Flags().Changed(flag) && annotation(cmd.Flags().Lookup(flag), byEnvironment) == ""
}

// variableOf returns the environment variable of a flag.
func variableOf(f *pflag.Flag) string {
	return cmp.Or(annotation(f, OwnVariable), variable(f.Name))
}

// sameEverywhere are the flags that mean the same in all commands, so that their variables count for all
// commands. The variable of another flag counts only for the commands that take it: see [TakeVariables]. Otherwise
// a variable for one command, such as the node of an agent, would be a filter of another.
var sameEverywhere = []string{
	"store", "store-tls", "store-ca", "store-cert", "store-key", "store-user", "store-password-file",
	"tls", "tls-ca", "tls-server-name", // of a connection to an xDS server
	"proto-set", "max-file", "follow-links-outside", "legacy-v2",
	"metrics-listen", "state-dir", "log-level", "log-format",
}

// takesVariables is the annotation of a command with the flags that it takes from the environment, in addition
// to sameEverywhere: names separated by spaces, or "*" for all flags.
const takesVariables = "variables"

// TakeVariables lets a command take flags from environment variables, in addition to the flags that mean the same
// in all commands. Without names it takes all its flags: this is for commands that run as a service.
func TakeVariables(cmd *cobra.Command, flags ...string) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[takesVariables] = cmp.Or(strings.Join(flags, " "), "*")
}

// takesVariable reports whether the environment variable of a flag counts for the command.
func takesVariable(cmd *cobra.Command, f *pflag.Flag) bool {
	takes := strings.Fields(cmd.Annotations[takesVariables])
	return f.Name != "help" && (slices.Contains(takes, "*") || slices.Contains(takes, f.Name) ||
		annotation(f, OwnVariable) != "" || slices.Contains(sameEverywhere, f.Name))
}

// variablesOf returns the environment variables that count for a command, sorted.
func variablesOf(cmd *cobra.Command) (names []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if takesVariable(cmd, f) {
			names = append(names, variableOf(f))
		}
	})
	slices.Sort(names)
	return names
}

// BindEnvironment sets each flag that is not on the command line from its environment variable, if this variable
// counts for the command. An empty variable counts as unset.
func BindEnvironment(cmd *cobra.Command, _ []string) error {
	var first error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value := os.Getenv(variableOf(f))
		if f.Changed || value == "" || first != nil || !takesVariable(cmd, f) {
			return
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			first = fmt.Errorf("environment variable %s: %w", variableOf(f), ExplainValueError(err))
		}
		Annotate(f, byEnvironment, variableOf(f))
	})
	for _, warning := range withoutEffect(cmd, os.Environ()) {
		fmt.Fprintln(cmd.ErrOrStderr(), "chancery: warning:", warning)
	}
	return first
}

// kubernetesVariable matches the variables that Kubernetes sets for a service named "chancery":
// CHANCERY_SERVICE_HOST, CHANCERY_PORT_18000_TCP_ADDR and more.
var kubernetesVariable = regexp.MustCompile(`^CHANCERY_(\w+_)?(SERVICE_HOST|SERVICE_PORT|PORT)(_|$)`)

// withoutEffect returns a warning for each variable that counts for no command, if its name is similar to a variable
// of this command or belongs to a flag of it. A service gets a warning for each such variable. Other commands
// do not, because other programs may use the prefix.
func withoutEffect(cmd *cobra.Command, environ []string) (warnings []string) {
	environ = slices.DeleteFunc(slices.Sorted(slices.Values(environ)), func(entry string) bool {
		name, value, _ := strings.Cut(entry, "=")
		return !strings.HasPrefix(name, VariablePrefix) || value == "" || kubernetesVariable.MatchString(name)
	})
	if len(environ) == 0 { // as for most commands: the variables of all commands take part of a millisecond
		return nil
	}
	counts := map[string]bool{}
	for _, c := range append(cmd.Root().Commands(), cmd) {
		for _, below := range append(c.Commands(), c) {
			for _, name := range variablesOf(below) {
				counts[name] = true
			}
		}
	}
	var own []string // without the prefix: with it, all names would be similar
	for _, name := range variablesOf(cmd) {
		own = append(own, strings.TrimPrefix(name, VariablePrefix))
	}
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if counts[name] {
			continue
		}
		rest := strings.TrimPrefix(name, VariablePrefix)
		flag := strings.ToLower(strings.ReplaceAll(rest, "_", "-"))
		if cmd.Flags().Lookup(flag) != nil && flag != "help" {
			warnings = append(warnings, fmt.Sprintf("the environment variable %s has no effect: use --%s", name, flag))
		} else if near := protoyaml.Nearest(rest, slices.Values(own)); near != "" {
			warnings = append(warnings, fmt.Sprintf("no flag uses the environment variable %s: did you mean %s?", name, VariablePrefix+near))
		} else if cmd.Annotations[takesVariables] == "*" {
			warnings = append(warnings, "no flag uses the environment variable "+name)
		}
	}
	return warnings
}
