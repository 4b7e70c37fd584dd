package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
)

// ExplainFlagError replaces cobra's error about a flag. For a misspelled name it suggests a flag; for an
// invalid value it explains the valid values.
func ExplainFlagError(cmd *cobra.Command, err error) error {
	if e, is := errors.AsType[*pflag.NotExistError](err); is {
		if name := e.GetSpecifiedName(); (name == "f" || name == "filename") && strings.Contains(cmd.Use, "DIR") { // as with kubectl
			return fmt.Errorf("%w: the directory is an argument: %s %s", err, cmd.Root().Name(), cmd.Use)
		}
		if meant := meantFlags(cmd, e.GetSpecifiedName()); meant != "" {
			return fmt.Errorf("%w: did you mean %s?", err, meant)
		}
		near := protoyaml.Nearest(e.GetSpecifiedName(), func(yield func(string) bool) {
			goOn := true
			cmd.Flags().VisitAll(func(f *pflag.Flag) { goOn = goOn && yield(f.Name) })
		})
		if near != "" && e.GetSpecifiedShortnames() == "" {
			return fmt.Errorf("%w: did you mean --%s?", err, near)
		}
	}
	if e, is := errors.AsType[*pflag.InvalidValueError](err); is {
		return fmt.Errorf("--%s: %w", e.GetFlag().Name, ExplainValueError(err))
	}
	return err
}

// guessedFlags are flags of similar programs, with the flags of chancery for the same purpose.
var guessedFlags = map[string][]string{
	"server": {"admin"}, "format": {"output"}, "f": {"output", "watch"}, "follow": {"watch"},
}

// meantFlags returns the flags of a command that have the purpose of a guessed flag; "" if there are none.
func meantFlags(cmd *cobra.Command, guess string) string {
	var all []string
	for _, name := range guessedFlags[guess] {
		f := cmd.Flags().Lookup(name)
		switch {
		case f == nil:
		case f.Shorthand != "":
			all = append(all, fmt.Sprintf("--%s (-%s)", name, f.Shorthand))
		default:
			all = append(all, "--"+name)
		}
	}
	return strings.Join(all, " or ")
}

// ExplainValueError replaces pflag's error about an invalid value by a description of the valid values.
// The error of pflag names the Go function that failed to parse the value.
func ExplainValueError(err error) error {
	e, is := errors.AsType[*pflag.InvalidValueError](err)
	if !is {
		return err
	}
	switch e.GetFlag().Value.Type() {
	case "int", "size":
		if errors.Is(err, strconv.ErrRange) {
			return fmt.Errorf("%s is too large", e.GetValue())
		}
		if e.GetFlag().Value.Type() == "size" {
			return fmt.Errorf("%q is not a size: write a number of bytes, with a unit if you like, such as 64MiB, 64MB or 1GiB", e.GetValue())
		}
		return fmt.Errorf("%q is not a whole number", e.GetValue())
	case "duration":
		return fmt.Errorf("%q is not a duration: write a number and its unit, such as 500ms, 10s, 5m or 1h30m", e.GetValue())
	case "bool":
		return fmt.Errorf("must be true or false, not %q", e.GetValue())
	case "only":
		return e.Unwrap()
	}
	return err
}
