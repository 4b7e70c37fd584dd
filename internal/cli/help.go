package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Annotations of flags: under which title the help shows them, and whether that is the help
// of a topic and not that of the command.
const (
	titleOf = "title"
	TopicOf = "topic"
)

// columns is how wide the flags of the help are. Terminals of 80 have them wrapped once more.
const columns = 100

// TitledFlags adds flags under a title of the help.
func TitledFlags(f *pflag.FlagSet, title string, add func(*pflag.FlagSet)) {
	own := pflag.NewFlagSet(title, pflag.ContinueOnError)
	own.SortFlags = false
	add(own)
	own.VisitAll(func(flag *pflag.Flag) { Annotate(flag, titleOf, title) })
	f.AddFlagSet(own)
}

// Annotate says of a flag what it is, unless that is said already.
func Annotate(flag *pflag.Flag, key, value string) {
	if flag.Annotations == nil {
		flag.Annotations = map[string][]string{}
	}
	if _, ok := flag.Annotations[key]; !ok {
		flag.Annotations[key] = []string{value}
	}
}

// annotation is what is said of a flag, or "".
func annotation(flag *pflag.Flag, key string) string { return strings.Join(flag.Annotations[key], "") }

// GivenFlag returns a flag with a title that was given on the command line, or "".
func GivenFlag(f *pflag.FlagSet, title string) (name string) {
	f.Visit(func(flag *pflag.Flag) {
		if name == "" && annotation(flag, titleOf) == title && annotation(flag, byEnvironment) == "" {
			name = flag.Name
		}
	})
	return name
}

// FlagsByTitle returns the flags of a command by their titles, in the order in which they were
// added: those of a topic, or with "" those of none. Flags without a title come last.
func FlagsByTitle(f *pflag.FlagSet, topic string) []*pflag.FlagSet {
	var sets []*pflag.FlagSet
	by := map[string]*pflag.FlagSet{}
	rest := pflag.NewFlagSet("Flags", pflag.ContinueOnError)
	f.VisitAll(func(flag *pflag.Flag) {
		title := annotation(flag, titleOf)
		if flag.Hidden || annotation(flag, TopicOf) != topic {
			return
		}
		set := by[title]
		switch {
		case title == "":
			set = rest
		case set == nil:
			set = pflag.NewFlagSet(title, pflag.ContinueOnError)
			set.SortFlags = false
			by[title] = set
			sets = append(sets, set)
		}
		set.AddFlag(flag)
	})
	if rest.HasFlags() {
		sets = append(sets, rest)
	}
	return sets
}

func printTitles(w io.Writer, sets []*pflag.FlagSet) {
	for _, set := range sets {
		fmt.Fprintf(w, "\n%s:\n%s", set.Name(), set.FlagUsagesWrapped(columns))
	}
}

// TitledUsage has a command print its flags under their titles.
func TitledUsage(cmd *cobra.Command, more string) {
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		w := cmd.OutOrStdout()
		fmt.Fprintf(w, "Usage:\n  %s\n\nExamples:\n%s\n", cmd.UseLine(), cmd.Example)
		printTitles(w, FlagsByTitle(cmd.LocalFlags(), ""))
		fmt.Fprintf(w, "\n%s\n", more)
		return nil
	})
}

// PlainUsage has a command print its flags in lines that fit a terminal.
func PlainUsage(cmd *cobra.Command) {
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		w := cmd.OutOrStdout()
		fmt.Fprintf(w, "Usage:\n  %s\n\nExamples:\n%s\n", cmd.UseLine(), cmd.Example)
		printTitles(w, FlagsByTitle(cmd.LocalFlags(), ""))
		return nil
	})
}

// LimitsTopic is the topic of what serve bounds.
const LimitsTopic = "limits"

// LimitsHelp is what "chancery help limits" prints: the flags of serve for limits.
func LimitsHelp(serve *cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   LimitsTopic,
		Short: "The limits of chancery serve, and their flags",
		Long: `Each limit is a flag of chancery serve, or an environment variable:
CHANCERY_MAX_STREAMS for --max-streams.

A client that exceeds a limit loses its own stream, with a status that names the
limit. The log has a line with the client's address, its node and the flag. Other
clients are unaffected.

A SIZE is a number of bytes, or a number with a unit: 67108864, 64MiB, 64MB, 1GiB.
A time is a number with a unit: 500ms, 20s, 5m. "The memory limit" is that of the
cgroup or GOMEMLIMIT.`,
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		w := cmd.OutOrStdout()
		fmt.Fprintln(w, cmd.Long)
		printTitles(w, FlagsByTitle(serve.Flags(), LimitsTopic))
	})
	return cmd
}

// RejectUnknownTopics has the commands that cobra adds refuse what they do not know, as all others do:
// it prints the help of something else, and ends with 0.
func RejectUnknownTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			help := cmd.Run
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				if _, _, err := root.Find(args); err != nil {
					return err
				}
				help(cmd, args)
				return nil
			}
		case "completion":
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}
