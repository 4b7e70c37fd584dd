package cli

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/internal/text"
)

// formats are the values of -o for a command that prints tables.
var formats = []string{"table", "wide", "json", "yaml", "jsonl", "name"}

// An Output holds the flags for the format of a command's answer.
type Output struct {
	Format    string
	NoHeaders bool
	formats   []string
}

// Register adds -o and --no-headers.
func (o *Output) Register(cmd *cobra.Command, of ...string) {
	o.formats = of
	if len(of) == 0 {
		o.formats = formats
	}
	last := len(o.formats) - 1
	cmd.Flags().StringVarP(&o.Format, "output", "o", o.formats[0], "`FORMAT`: "+strings.Join(o.formats[:last], ", ")+" or "+o.formats[last])
	OfferValues(cmd, "output", o.formats...)
	if slices.Contains(o.formats, "table") {
		cmd.Flags().BoolVar(&o.NoHeaders, "no-headers", false, "print tables without their first line")
	}
}

// Check returns an error of usage for an unknown format.
func (o *Output) Check() error {
	if !slices.Contains(o.formats, o.Format) {
		last := len(o.formats) - 1
		return fmt.Errorf("--output: %q: must be %s or %s", o.Format, strings.Join(o.formats[:last], ", "), o.formats[last])
	}
	return nil
}

// Wide reports whether tables show all columns.
func (o *Output) Wide() bool { return o.Format == "wide" }

// ForPeople reports whether a person reads the output.
func (o *Output) ForPeople() bool {
	return o.Format == "table" || o.Format == "wide" || o.Format == "text"
}

// PrintData prints an answer in a format for programs: the whole answer, or one item per line.
func PrintData[T any](o *Output, w io.Writer, answer any, items []T, name func(T) string) error {
	var err error
	switch o.Format {
	case "yaml":
		err = WriteYAML(w, answer)
	case "jsonl":
		for _, item := range items {
			err = text.WriteJSON(w, item, "")
			if err != nil {
				break
			}
		}
	case "name":
		for _, item := range items {
			_, err = fmt.Fprintln(w, text.Line(name(item)))
			if err != nil {
				break
			}
		}
	default:
		err = text.WriteJSON(w, answer, "  ")
	}
	if err != nil {
		return Fail(err, "")
	}
	return nil
}

// A List is an answer that a command composes from several answers of the admin API.
type List[T any] struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Items      []T    `json:"items"`
}

// WriteYAML writes the JSON of an answer as YAML, with fields in the same order.
func WriteYAML(w io.Writer, answer any) error {
	var b, out bytes.Buffer
	if err := text.WriteJSON(&b, answer, ""); err != nil {
		return err
	}
	var doc yaml.Node // JSON is YAML
	if err := yaml.Unmarshal(b.Bytes(), &doc); err != nil {
		return err
	}
	unquoted(&doc)
	y := yaml.NewEncoder(&out)
	y.SetIndent(2)
	if err := y.Encode(&doc); err != nil {
		return err
	}
	if err := y.Close(); err != nil {
		return err
	}
	_, err := w.Write(text.JSON(out.Bytes())) // JSON escapes are valid in YAML: the strings with escapes are in double quotes
	return err
}

// unquoted changes a node from the style of JSON to the usual style of YAML.
func unquoted(n *yaml.Node) {
	n.Style = 0
	odd := len(text.JSON([]byte(n.Value))) != len(n.Value) // the string needs escapes
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && (odd || n.Value == "@type" || slices.Contains([]string{"y", "n", "yes", "no", "on", "off"}, strings.ToLower(n.Value))) {
		n.Style = yaml.DoubleQuotedStyle // escapes need double quotes; @type is usually quoted; some readers parse the other values as booleans
	}
	for _, c := range n.Content {
		unquoted(c)
	}
}

// A Table is printed in columns. Its cells may contain untrusted text from clients.
type Table struct {
	Headers []string
	Rows    [][]string
}

// Row adds a row.
func (t *Table) Row(cells ...string) { t.Rows = append(t.Rows, cells) }

// Print prints the table if it has rows.
func (t *Table) Print(w io.Writer, o *Output) {
	if len(t.Rows) == 0 {
		return
	}
	var all [][]string
	if !o.NoHeaders {
		all = append(all, t.Headers)
	}
	for _, row := range t.Rows {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = text.Line(c)
			if c == "" {
				cells[i] = "-"
			}
		}
		all = append(all, cells)
	}
	if p, ok := w.(*Page); ok && p.Columns > 0 {
		p.fit(all)
		return
	}
	tw := tabwriter.NewWriter(w, 0, 0, gap, ' ', 0)
	for _, row := range all {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	tw.Flush()
}

// BytesText returns a size with a rounded unit: 1.2 KiB.
func BytesText(n int) string {
	switch {
	case n < 1<<10:
		return strconv.Itoa(n) + " B"
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// ShortVersion returns the first 12 characters of a version, enough to distinguish versions by eye.
func ShortVersion(version string) string {
	if len(version) > 12 {
		return version[:12]
	}
	return version
}
