package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chancery-xds/chancery/internal/protofile"
	"github.com/chancery-xds/chancery/internal/source/dir"
	"github.com/chancery-xds/chancery/store"
)

// errFindings ends a check that has found something, which is told already.
var errFindings = errors.New("there are findings")

func checkCommand() *cobra.Command {
	var output string
	var strict bool
	cmd := &cobra.Command{
		Use:   "check DIR",
		Short: "Check the configuration in a directory",
		Long: `Check loads a directory as serve does, and tells every mistake with its place.
Nothing is served, no other program is asked. See "chancery serve --help" for
what a directory may hold.

What Envoy alone can know, such as whether a filter accepts its settings, it
finds out when it is told: see the log of the server for what clients refuse.

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
			c := check(args[0])
			if err := print(cmd.OutOrStdout(), c); err != nil {
				return failure{err, ""}
			}
			if c.errors() > 0 || strict && len(c.findings) > 0 {
				return errFindings
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&output, "output", "o", "text", "`FORMAT` of what is found: text or json")
	f.BoolVar(&strict, "strict", false, "warnings are findings too")
	return cmd
}

// A checked directory.
type checked struct {
	files    int
	counts   []dir.Count // none if there are mistakes
	findings []protofile.Problem
}

func (c checked) errors() int {
	n := 0
	for _, p := range c.findings {
		if !p.Warning {
			n++
		}
	}
	return n
}

func printText(w io.Writer, c checked) error {
	for _, p := range c.findings {
		if _, err := fmt.Fprintln(w, p.Text()); err != nil {
			return err
		}
	}
	bad := c.errors()
	doubtful := len(c.findings) - bad
	var err error
	switch {
	case bad > 0:
		_, err = fmt.Fprintf(w, "%s, %s\n", count(bad, "error"), count(doubtful, "warning"))
	default:
		var types []string
		n := 0
		for _, c := range c.counts {
			n += c.N
			types = append(types, fmt.Sprint(c.Type, " ", c.N))
		}
		if doubtful > 0 {
			types = append(types, count(doubtful, "warning"))
		}
		all := ""
		if len(types) > 0 {
			all = ": " + strings.Join(types, ", ")
		}
		_, err = fmt.Fprintf(w, "ok: %s in %s%s\n", count(n, "resource"), count(c.files, "file"), all)
	}
	return err
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprint(n, " ", what, "s")
}

func printJSON(w io.Writer, c checked) error {
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
		Findings  []finding      `json:"findings"`
	}{c.files, map[string]int{}, []finding{}}
	for _, n := range c.counts {
		out.Resources[n.Type.String()] = n.N
	}
	for _, p := range c.findings {
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

// check loads a directory into a store that nobody asks.
func check(root string) checked {
	r, err := dir.New(root, store.New(), dir.Options{}).Load()
	c := checked{files: r.Files, counts: r.Counts}
	if err == nil {
		return c
	}
	errs, ok := errors.AsType[dir.Errors](err)
	if !ok {
		c.findings = append(c.findings, protofile.Problem{File: root, Message: err.Error()})
	}
	for _, e := range errs {
		c.findings = append(c.findings, protofile.Problem{File: e.File, Pos: protofile.Pos{Line: e.Line, Column: e.Col}, Message: e.Text, Excerpt: line(e.File, e.Line)})
	}
	return c
}

// line returns a line of a file, "" if there is none.
func line(path string, n int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	lines := strings.Split(string(b), "\n")
	if n < 1 || n > len(lines) {
		return ""
	}
	return strings.TrimRight(lines[n-1], "\r")
}
