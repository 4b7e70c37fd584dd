package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// OfferValues makes a shell complete the values of a flag.
func OfferValues(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag does not exist
	}
}

// FlagValues maps the name of a flag to its values, for flags that accept only certain values.
var FlagValues = map[string][]string{
	"log-level":  {"debug", "info", "warn", "error"},
	"log-format": {"auto", "text", "json"},
	"output":     {"text", "json"},
	"format":     {"yaml", "json", "pb_text", "pb"},
}

// RegisterCompletions registers the completions of a command and its subcommands: values of flags, files,
// directories, or no completion.
func RegisterCompletions(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		RegisterCompletions(c)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		placeholder, _ := pflag.UnquoteUsage(f)
		var complete cobra.CompletionFunc
		switch values := FlagValues[f.Name]; {
		case values != nil:
			complete = cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveKeepOrder)
		case placeholder == "FILE" || placeholder == "PATH":
			complete = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
		case slices.Contains([]string{"DIRECTORY", "directory"}, placeholder):
			complete = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
		default:
			complete = cobra.NoFileCompletions
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, complete) // cannot fail: the flag exists
	})
	// "DIR" is the word in a command's usage for the directory that the command loads.
	if slices.ContainsFunc(strings.Fields(cmd.Use), func(arg string) bool {
		return arg == "DIR" || strings.HasPrefix(arg, "DIR|xds://") || arg == "DIR|rev:REV"
	}) {
		cmd.ValidArgsFunction = CompleteDirectory
	}
}

// CompleteDirectory completes the only argument of a command, a directory.
func CompleteDirectory(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}
