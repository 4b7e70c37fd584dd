package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Annotations of flags: the title under which the help shows the flag, and the help topic that shows the
// flag instead of the command's help.
const (
	titleOf = "title"
	TopicOf = "topic"
)

// columns is the width of the flags in the help. A terminal of 80 columns wraps the lines again.
const columns = 100

// TitledFlags adds flags under a title of the help.
func TitledFlags(f *pflag.FlagSet, title string, add func(*pflag.FlagSet)) {
	own := pflag.NewFlagSet(title, pflag.ContinueOnError)
	own.SortFlags = false
	add(own)
	own.VisitAll(func(flag *pflag.Flag) { Annotate(flag, titleOf, title) })
	f.AddFlagSet(own)
}

// Annotate sets an annotation of a flag, unless the flag already has it.
func Annotate(flag *pflag.Flag, key, value string) {
	if flag.Annotations == nil {
		flag.Annotations = map[string][]string{}
	}
	if _, ok := flag.Annotations[key]; !ok {
		flag.Annotations[key] = []string{value}
	}
}

// annotation returns the value of a flag's annotation, or "".
func annotation(flag *pflag.Flag, key string) string { return strings.Join(flag.Annotations[key], "") }

// GivenFlag returns the name of the first flag under a title that the command line has, or "".
func GivenFlag(f *pflag.FlagSet, title string) (name string) {
	f.Visit(func(flag *pflag.Flag) {
		if name == "" && annotation(flag, titleOf) == title && annotation(flag, byEnvironment) == "" {
			name = flag.Name
		}
	})
	return name
}

// FlagsByTitle groups the flags of a command by title, in the order in which they were added. It returns
// only the flags of a topic; the topic "" means flags without a topic. Flags without a title come last.
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

// TitledUsage makes a command print its flags under their titles.
func TitledUsage(cmd *cobra.Command, more string) {
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		w := cmd.OutOrStdout()
		fmt.Fprintf(w, "Usage:\n  %s\n\nExamples:\n%s\n", cmd.UseLine(), cmd.Example)
		printTitles(w, FlagsByTitle(cmd.LocalFlags(), ""))
		fmt.Fprintf(w, "\n%s\n", more)
		return nil
	})
}

// PlainUsage makes a command print its flags in lines that fit a terminal.
func PlainUsage(cmd *cobra.Command) {
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		w := cmd.OutOrStdout()
		fmt.Fprintf(w, "Usage:\n  %s\n\nExamples:\n%s\n", cmd.UseLine(), cmd.Example)
		printTitles(w, FlagsByTitle(cmd.LocalFlags(), ""))
		return nil
	})
}

// LimitsTopic is the help topic about the limits of serve.
const LimitsTopic = "limits"

// LimitsHelp returns the command for "chancery help limits", which prints the flags of serve that set
// limits.
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

// RejectUnknownTopics makes the commands of cobra, such as help, reject an unknown topic, as other
// commands reject an unknown argument. Otherwise cobra would print another help text and exit with
// code 0.
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
