// Package report writes the findings of a check in formats for people, scripts and build systems. It
// finds nothing itself.
package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/text"
)

// A Report is the result of a check. Writers do not change its strings.
type Report struct {
	Program  string // version of Chancery
	Files    int
	Groups   int                // number of groups; 0: the files have no groups
	Counts   []Count            // number of resources by type
	Findings []findings.Problem // errors first
	Bad      bool               // the check fails
}

// A Count is the number of resources of a type.
type Count struct {
	Type string
	N    int
}

// Formats are the writers of reports, by the name of the format.
var Formats = map[string]func(io.Writer, Report) error{
	"text": Text, "json": JSON, "sarif": SARIF, "github": GitHub, "junit": JUnit,
}

// Names lists the formats for help texts.
const Names = "text, json, sarif, github or junit"

// count returns the number of errors and warnings, including omitted ones.
func (r Report) count() (errors, warnings int) {
	all := findings.Count(r.Findings)
	warnings = findings.Count(slices.DeleteFunc(slices.Clone(r.Findings), func(p findings.Problem) bool { return !p.Warning }))
	return all - warnings, warnings
}

func severity(p findings.Problem) string {
	if p.Warning {
		return "warning"
	}
	return "error"
}

// message returns a problem without its position, on one line.
func message(p findings.Problem) string {
	s := p.Message
	if p.Path != "" {
		s = p.Path + ": " + s
	}
	if p.Group != "" {
		s = "group " + p.Group + ": " + s
	}
	if p.Hint != "" {
		s += " (" + p.Hint + ")"
	}
	return s
}

// Text writes a report for people.
func Text(w io.Writer, r Report) error {
	for _, p := range r.Findings {
		first, rest, _ := strings.Cut(p.Text(), "\n")
		if p.Code != "" {
			first += " [" + string(p.Code) + "]"
		}
		if rest != "" {
			first += "\n" + rest
		}
		if _, err := fmt.Fprintln(w, first); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, r.summary())
	return err
}

// summary returns the last line for people.
func (r Report) summary() string {
	errors, warnings := r.count()
	if r.Bad {
		return plural(errors, "error") + ", " + plural(warnings, "warning")
	}
	line, n := "", 0
	for i, t := range r.Counts {
		n += t.N
		line += []string{": ", ", "}[min(i, 1)] + fmt.Sprint(t.Type, " ", t.N)
	}
	if warnings > 0 {
		line += "; " + plural(warnings, "warning")
	}
	in := ""
	if r.Groups > 0 {
		in = " of " + plural(r.Groups, "group")
	}
	return "ok: " + plural(n, "resource") + " in " + plural(r.Files, "file") + in + line
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprint(n, " ", what, "s")
}

// Version is the version of the JSON format. It increases when a field is removed or changes its
// meaning, but not when a field is added.
const Version = 1

// JSON writes a report for scripts; docs/check.md has the table of fields.
func JSON(w io.Writer, r Report) error {
	type finding struct {
		Code     findings.Code `json:"code"`
		Severity string        `json:"severity"`
		File     string        `json:"file"`
		Line     int           `json:"line,omitempty"`
		Column   int           `json:"column,omitempty"`
		Path     string        `json:"path,omitempty"`
		Message  string        `json:"message"`
		Hint     string        `json:"hint,omitempty"`
		Group    string        `json:"group,omitempty"`
		Others   int           `json:"others,omitempty"`
	}
	out := struct {
		Version   int            `json:"version"`
		OK        bool           `json:"ok"`
		Files     int            `json:"files"`
		Groups    int            `json:"groups,omitempty"`
		Resources map[string]int `json:"resources"`
		Errors    int            `json:"errors"`
		Warnings  int            `json:"warnings"`
		Findings  []finding      `json:"findings"`
	}{Version: Version, OK: !r.Bad, Files: r.Files, Groups: r.Groups, Resources: map[string]int{}, Findings: []finding{}}
	out.Errors, out.Warnings = r.count()
	for _, c := range r.Counts {
		out.Resources[c.Type] = c.N
	}
	for _, p := range r.Findings {
		out.Findings = append(out.Findings, finding{p.CodeOrOther(), severity(p), p.File, p.Pos.Line, p.Pos.Column, p.Path, p.Message, p.Hint, p.Group, p.Omitted})
	}
	return encode(w, out)
}

func encode(w io.Writer, v any) error { return text.WriteJSON(w, v, "  ") }

// Escapes for the special characters in a command of a GitHub workflow.
var (
	data       = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	properties = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// GitHub writes commands of a GitHub workflow. GitHub shows them next to the changed lines.
func GitHub(w io.Writer, r Report) error {
	for _, p := range r.Findings {
		at := "file=" + properties.Replace(p.File)
		if p.Pos.Line > 0 {
			at += fmt.Sprintf(",line=%d", p.Pos.Line)
		}
		if p.Pos.Column > 0 {
			at += fmt.Sprintf(",col=%d", p.Pos.Column)
		}
		title := string(p.CodeOrOther())
		if k, ok := findings.Explain(title); ok {
			title += " " + k.Title
		}
		if _, err := fmt.Fprintf(w, "::%s %s,title=%s::%s\n", severity(p), at, properties.Replace(title), data.Replace(text.Lines(message(p)))); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, r.summary())
	return err
}
