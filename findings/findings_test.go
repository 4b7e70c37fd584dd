package findings

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write docs/findings.md")

const page = "../docs/findings.md"

const head = `# What check finds

<!-- made by go test ./findings -update -->

Each finding of ` + "`chancery check`" + ` has a code, which never changes its meaning. ` + "`chancery check --explain XDS0301`" + `
prints the text on this page.

- A server does not load files with an error. It loads files with warnings. ` + "`--strict`" + ` makes check fail because of
  warnings.
- XDS03 and XDS04 are mistakes that Envoy would refuse. A server loads such files and logs ` + "`refusal expected`" + `.
  With ` + "`serve --validate`" + ` it does not load them.
- Only ` + "`check --envoy`" + ` reports XDS09.
- ` + "`--ignore CODE`" + ` leaves a finding out. This does not work for XDS01, XDS0601 and errors of XDS07, with which no
  server loads the files.

[check.md](check.md#output-for-programs) describes the formats of the output.

`

// pageText returns docs/findings.md.
func pageText() string {
	var b strings.Builder
	b.WriteString(head)
	b.WriteString("| code | severity | finding |\n|---|---|---|\n")
	for _, k := range table {
		b.WriteString("| [" + string(k.Code) + "](#" + strings.ToLower(string(k.Code)) + ") | " + k.Severity() + " | " + k.Title + " |\n")
	}
	for _, k := range table {
		b.WriteString("\n## " + string(k.Code) + "\n" + wrap("**"+upper(k.Title)+"** ("+k.Severity()+"). "+k.Why) + "\n\n" + wrap("*What to do:* "+k.Remedy) + "\n")
	}
	return b.String()
}

// wrap breaks a paragraph into lines of at most 120 characters.
func wrap(s string) string {
	var b strings.Builder
	length := 0
	for word := range strings.FieldsSeq(s) {
		switch n := utf8.RuneCountInString(word); {
		case length == 0:
			length = n
		case length+1+n > 120:
			b.WriteByte('\n')
			length = n
		default:
			b.WriteByte(' ')
			length += 1 + n
		}
		b.WriteString(word)
	}
	return b.String()
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// The page agrees with the table.
func TestPageIsCurrent(t *testing.T) {
	if *update {
		if err := os.WriteFile(page, []byte(pageText()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != pageText() {
		t.Error("docs/findings.md is not made of the table: go test ./findings -update")
	}
}

func TestTable(t *testing.T) {
	if !slices.IsSortedFunc(table, func(a, b Kind) int { return strings.Compare(string(a.Code), string(b.Code)) }) {
		t.Error("the table is not sorted by code")
	}
	seen := map[Code]bool{}
	for _, k := range table {
		switch {
		case !regexp.MustCompile(`^XDS0[0-9]{3}$`).MatchString(string(k.Code)):
			t.Errorf("the code %q", k.Code)
		case seen[k.Code]:
			t.Errorf("%s twice", k.Code)
		case k.Title == "" || k.Why == "" || k.Remedy == "":
			t.Errorf("%s is not explained", k.Code)
		case strings.ToLower(k.Title[:1]) != k.Title[:1] && !strings.HasPrefix(k.Title, "EDS") && !strings.HasPrefix(k.Title, "TLS") && !strings.HasPrefix(k.Title, "LOGICAL") && !strings.HasPrefix(k.Title, "Envoy"):
			t.Errorf("%s: the title begins with an upper case letter: %s", k.Code, k.Title)
		}
		seen[k.Code] = true
	}
}

// Each constant has a row in the table.
func TestConstants(t *testing.T) {
	src, err := os.ReadFile("findings.go")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`Code\s+= "(XDS[0-9]+)"`).FindAllStringSubmatch(string(src), -1)
	if len(all) != len(table) {
		t.Errorf("%d constants and %d rows", len(all), len(table))
	}
	for _, m := range all {
		if _, ok := Explain(strings.ToLower(m[1])); !ok {
			t.Errorf("%s has no row", m[1])
		}
	}
}

func TestExplain(t *testing.T) {
	k, ok := Explain("xds0301")
	if !ok {
		t.Fatal("not found")
	}
	text := k.Text()
	if !strings.HasPrefix(text, "XDS0301 (error): ") || !strings.Contains(text, "What to do: ") {
		t.Error(text)
	}
	for line := range strings.Lines(text) {
		if len(line) > 95 {
			t.Errorf("a line of %d characters: %s", len(line), line)
		}
	}
	if _, ok := Explain("XDS9999"); ok {
		t.Error("XDS9999 is known")
	}
}

// Only the families 03 and 04 are about values that Envoy refuses and a server can serve.
func TestOfEnvoy(t *testing.T) {
	for _, k := range table {
		if family := k.Code[:5]; k.Code.IsEnvoyRule() != (family == "XDS03" || family == "XDS04") {
			t.Errorf("%s: %v", k.Code, k.Code.IsEnvoyRule())
		}
	}
}
