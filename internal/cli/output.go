package cli

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/internal/text"
)

// formats are those of -o, and what they are.
var formats = []string{"table", "wide", "json", "yaml", "jsonl", "name"}

// An Output is how a command prints an answer.
type Output struct {
	Format    string
	NoHeaders bool
	formats   []string
}

// Register adds -o and --no-headers.
func (o *Output) Register(cmd *cobra.Command, of ...string) {
	if o.formats = of; len(of) == 0 {
		o.formats = formats
	}
	last := len(o.formats) - 1
	cmd.Flags().StringVarP(&o.Format, "output", "o", o.formats[0], "`FORMAT`: "+strings.Join(o.formats[:last], ", ")+" or "+o.formats[last])
	OfferValues(cmd, "output", o.formats...)
	if slices.Contains(o.formats, "table") {
		cmd.Flags().BoolVar(&o.NoHeaders, "no-headers", false, "print tables without their first line")
	}
}

// Check returns an error of usage if the format is unknown.
func (o *Output) Check() error {
	if !slices.Contains(o.formats, o.Format) {
		last := len(o.formats) - 1
		return fmt.Errorf("--output: %q: must be %s or %s", o.Format, strings.Join(o.formats[:last], ", "), o.formats[last])
	}
	return nil
}

// Wide reports whether tables have all columns.
func (o *Output) Wide() bool { return o.Format == "wide" }

// People reports whether a person reads the output.
func (o *Output) People() bool {
	return o.Format == "table" || o.Format == "wide" || o.Format == "text"
}

// PrintData prints an answer for programs: whole, or its items one by one.
func PrintData[T any](o *Output, w io.Writer, answer any, items []T, name func(T) string) error {
	var err error
	switch o.Format {
	case "yaml":
		err = WriteYAML(w, answer)
	case "jsonl":
		for _, item := range items {
			if err = text.WriteJSON(w, item, ""); err != nil {
				break
			}
		}
	case "name":
		for _, item := range items {
			if _, err = fmt.Fprintln(w, text.Line(name(item))); err != nil {
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

// An List is an answer that is made here, of several of the admin API's.
type List[T any] struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Items      []T    `json:"items"`
}

// WriteYAML writes what JSON would say, fields in the same order.
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
	_, err := w.Write(text.JSON(out.Bytes())) // what is escaped stands in double quotes
	return err
}

// unquoted has a node written as people write YAML, and not as JSON.
func unquoted(n *yaml.Node) {
	n.Style = 0
	odd := len(text.JSON([]byte(n.Value))) != len(n.Value) // escapes are longer
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && (odd || n.Value == "@type" || slices.Contains([]string{"y", "n", "yes", "no", "on", "off"}, strings.ToLower(n.Value))) {
		n.Style = yaml.DoubleQuotedStyle // escapes stand in these only; so everybody writes @type, and the others some read as true and false
	}
	for _, c := range n.Content {
		unquoted(c)
	}
}

// A Table is printed in columns. Its cells may be what clients say.
type Table struct {
	Headers []string
	Rows    [][]string
}

// Row adds a row.
func (t *Table) Row(cells ...string) { t.Rows = append(t.Rows, cells) }

// Print prints the table, if it has rows.
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
			if cells[i] = text.Line(c); c == "" {
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

// Since is how long ago something was, in one or two units: 4s, 18m, 3d2h.
func Since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	d := max(time.Since(t), 0) // clocks differ
	day := 24 * time.Hour
	two := func(of, unit time.Duration, a, b string) string {
		s := strconv.Itoa(int(d/of)) + a
		if rest := d % of / unit; rest > 0 {
			s += strconv.Itoa(int(rest)) + b
		}
		return s
	}
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + "s"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + "m"
	case d < day:
		return two(time.Hour, time.Minute, "h", "m")
	}
	return two(day, time.Hour, "d", "h")
}

// Number is 1,204 for 1204.
func Number(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Amount is "1 client", "1,204 clients".
func Amount(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Number(n) + " " + what + "s"
}

// BytesText is a size as people read it: 1.2 KiB.
func BytesText(n int) string {
	switch {
	case n < 1<<10:
		return strconv.Itoa(n) + " B"
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// ShortVersion is a version as it is told apart by eye.
func ShortVersion(version string) string {
	if len(version) > 12 {
		return version[:12]
	}
	return version
}
