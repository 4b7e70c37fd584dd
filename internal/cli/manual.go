package cli

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manualPage returns the manual page of a command, in the language of man(7). The page has the same text
// as --help. It is not made by cobra's generator, which supports neither titles of flags nor preformatted
// paragraphs.
func manualPage(cmd *cobra.Command) []byte {
	b := new(bytes.Buffer)
	page := pageOf(cmd)
	fmt.Fprintf(b, ".TH %s 1 \"\" \"chancery %s\" \"Chancery\"\n", argument(strings.ToUpper(page)), Version())
	fmt.Fprint(b, ".nh\n.ad l\n") // does not break the name of a flag over two lines
	fmt.Fprintf(b, ".SH NAME\n%s \\- %s\n", roff(page), roff(cmd.Short))
	synopsis := cmd.CommandPath() + " [command]"
	switch {
	case cmd.Name() == LimitsTopic:
		synopsis = "chancery help " + LimitsTopic
	case cmd.Runnable():
		synopsis = cmd.UseLine()
	}
	fmt.Fprintf(b, ".SH SYNOPSIS\n.B %s\n", roff(synopsis))
	fmt.Fprintf(b, ".SH DESCRIPTION\n")
	for paragraph := range strings.SplitSeq(cmd.Long, "\n\n") {
		if strings.HasPrefix(paragraph, "  ") { // a list, or commands
			fmt.Fprintf(b, ".PP\n.nf\n%s\n.fi\n", roff(paragraph))
			continue
		}
		fmt.Fprintf(b, ".PP\n%s\n", roff(paragraph))
	}
	if cmd.HasExample() {
		fmt.Fprintf(b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(cmd.Example))
	}
	of, topic := cmd, ""
	if cmd.Name() == LimitsTopic {
		of, topic = sibling(cmd, "serve"), LimitsTopic
	}
	of.InitDefaultHelpFlag()
	for _, set := range FlagsByTitle(of.LocalFlags(), topic) {
		fmt.Fprintf(b, ".SH %s\n", argument(strings.ToUpper(set.Name())))
		set.VisitAll(func(f *pflag.Flag) { manualFlag(b, f) })
	}
	var others []string
	for _, c := range documented(cmd.Root()) {
		if c != cmd {
			others = append(others, fmt.Sprintf(".BR %s (1)", roff(pageOf(c))))
		}
	}
	fmt.Fprintf(b, ".SH SEE ALSO\n%s\n", strings.Join(others, ",\n"))
	return b.Bytes()
}

func manualFlag(b *bytes.Buffer, f *pflag.Flag) {
	placeholder, usage := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if f.Value.Type() != "bool" && f.DefValue != "" && f.DefValue != "[]" {
		usage += " (default " + f.DefValue + ")"
	}
	fmt.Fprintf(b, ".TP\n\\fB%s\\fR \\fI%s\\fR\n%s\n", roff(name), roff(placeholder), roff(usage))
}

// sibling returns the command with a name and with the same parent as cmd.
func sibling(cmd *cobra.Command, name string) *cobra.Command {
	for _, c := range cmd.Parent().Commands() {
		if c.Name() == name {
			return c
		}
	}
	return cmd
}

// roff escapes text so that man shows it unchanged.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, `-`, `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

// argument quotes text as one argument of a roff macro.
func argument(text string) string { return `"` + strings.ReplaceAll(roff(text), `"`, `\(dq`) + `"` }
