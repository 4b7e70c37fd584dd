package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/protofile"
	"github.com/chancery-xds/chancery/internal/source/dir"
)

// errFindings ends a check that has found something, which is told already.
var errFindings = errors.New("there are findings")

func checkCommand() *cobra.Command {
	var output string
	var strict bool
	var opts dir.Options
	var sets []string
	cmd := &cobra.Command{
		Use:   "check DIR",
		Short: "Check the configuration in a directory",
		Long: `Check loads a directory as serve does, and tells every mistake with its place.
Nothing is served, no other program is asked. See "chancery serve --help" for
what a directory may hold.

Warnings tell what is doubtful, such as a reference to a resource that no file
has.

What Envoy alone can know, such as whether a filter accepts its settings, or a
value is in the range that its API demands, it finds out when it is told: see the
log of the server for what clients refuse. Of more than 100 mistakes the first 100
are told, and how many more there are; of warnings, too. --max-findings 0 tells all.

Exit codes: 0 nothing found; 1 something is; 2 wrong use.`,
		Example: `  chancery check ./config
  chancery check ./config -o json | jq -r '.findings[].file'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("check wants one directory, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			print := printText
			switch output {
			case "text":
			case "json":
				print = printJSON
			default:
				return fmt.Errorf("--output: %q is none of text and json", output)
			}
			if err := checkMaxFile(opts.MaxFile); err != nil {
				return err
			}
			switch {
			case opts.Most < 0:
				return fmt.Errorf("--max-findings %d: want 0 or more", opts.Most)
			case opts.Most == 0:
				opts.Most = -1
			}
			var err error
			if opts.Types, err = readSets(sets); err != nil {
				return err
			}
			c := dir.Check(args[0], opts)
			bad := len(c.Errors) > 0 || strict && len(c.Warnings) > 0
			if err := print(cmd.OutOrStdout(), c, bad); err != nil {
				return failure{err, ""}
			}
			if bad {
				return errFindings
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&output, "output", "o", "text", "`FORMAT` of what is found: text or json")
	f.BoolVar(&strict, "strict", false, "warnings are findings too")
	f.IntVar(&opts.Most, "max-findings", protofile.MaxProblems, "largest `number` of mistakes, and of warnings, that are told; the others are counted. 0: all")
	setFlag(f, &sets)
	sizeVar(f, &opts.MaxFile, "max-file", 64<<20, "largest `SIZE` of a file")
	followFlag(f, &opts.FollowLinksOutside)
	v2Flag(f, &opts.V2)
	return cmd
}

func printText(w io.Writer, c dir.Checked, bad bool) error {
	for _, p := range findings(c) {
		if _, err := fmt.Fprintln(w, p.Text()); err != nil {
			return err
		}
	}
	if bad {
		_, err := fmt.Fprintf(w, "%s, %s\n", count(protofile.Count(c.Errors), "error"), count(protofile.Count(c.Warnings), "warning"))
		return err
	}
	line, n := "", 0
	for i, t := range c.Counts {
		n += t.N
		line += []string{": ", ", "}[min(i, 1)] + fmt.Sprint(t.Type, " ", t.N)
	}
	if len(c.Warnings) > 0 {
		line += "; " + count(protofile.Count(c.Warnings), "warning")
	}
	_, err := fmt.Fprintf(w, "ok: %s in %s%s\n", count(n, "resource"), count(c.Files, "file"), line)
	return err
}

// findings are the errors and after them the warnings.
func findings(c dir.Checked) []protofile.Problem { return slices.Concat(c.Errors, c.Warnings) }

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprint(n, " ", what, "s")
}

func printJSON(w io.Writer, c dir.Checked, _ bool) error {
	type finding struct {
		Severity string `json:"severity"`
		File     string `json:"file"`
		Line     int    `json:"line,omitempty"`
		Column   int    `json:"column,omitempty"`
		Path     string `json:"path,omitempty"`
		Message  string `json:"message"`
		Hint     string `json:"hint,omitempty"`
	}
	out := struct {
		Files     int            `json:"files"`
		Resources map[string]int `json:"resources"`
		Errors    int            `json:"errors"` // those included that are not among the findings
		Warnings  int            `json:"warnings"`
		Findings  []finding      `json:"findings"`
	}{c.Files, map[string]int{}, protofile.Count(c.Errors), protofile.Count(c.Warnings), []finding{}}
	for _, n := range c.Counts {
		out.Resources[n.Type.String()] = n.N
	}
	for _, p := range findings(c) {
		severity := "error"
		if p.Warning {
			severity = "warning"
		}
		out.Findings = append(out.Findings, finding{severity, p.File, p.Pos.Line, p.Pos.Column, p.Path, p.Message, p.Hint})
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(out)
}
