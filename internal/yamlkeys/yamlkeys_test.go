package yamlkeys

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/findings"
)

// read reads a file with the keys name, list and inner. It returns the texts in their order, and the problems.
func read(t *testing.T, src string) (texts, problems string) {
	t.Helper()
	r, n := Open("settings file", "s.yaml", []byte(src))
	var all []string
	text := func(n *yaml.Node, path string) { all = append(all, path+"="+r.Text(n, path)) }
	if n != nil {
		r.Each(findings.UnknownField, n, "", "a settings file", Keys{
			"name": text,
			"list": func(n *yaml.Node, path string) {
				Items(n, path, func(n *yaml.Node, path string, i int) bool {
					text(n, path)
					if path == "list" && i != 0 {
						t.Error("the index of a single value is", i)
					}
					return i < 1
				})
			},
			"inner": func(n *yaml.Node, path string) {
				is := r.Each(findings.WrongValue, n, path, "an inner mapping", Keys{"name": text}, func(key string) string {
					return map[string]string{"list": "list belongs to the file"}[key]
				})
				if is != (n.Kind == yaml.MappingNode) {
					t.Error("Each reports a mapping:", is)
				}
			},
		}, nil)
	}
	var lines []string
	for _, p := range r.Problems {
		lines = append(lines, string(p.Code)+" "+p.Error())
	}
	return strings.Join(all, " "), strings.Join(lines, "\n")
}

func TestReader(t *testing.T) {
	long := strings.Repeat("x", 200)
	for name, c := range map[string]struct{ src, texts, problems string }{
		"all keys":                 {"name: a\nlist: [b, c]\ninner: {name: d}", "name=a list[0]=b list[1]=c inner.name=d", ""},
		"a value for a list":       {"list: b", "list=b", ""},
		"no more items than taken": {"list: [a, b, 5]", "list[0]=a list[1]=b", ""},
		"aliases and merge keys":   {"name: &n a\nlist: [*n]\ninner: {<<: {name: *n}}", "name=a list[0]=a inner.name=a", ""},
		"no document":              {"# nothing\n", "", ""},
		"null":                     {"~", "", ""},
		"JSON":                     {`{"name": "a"}`, "name=a", ""},
		"a byte order mark":        {"\ufeffname: a", "name=a", ""},
		"an ignored key":           {"!ignore x: &a b\nname: *a", "name=b", ""},
		"a word of YAML 1.1":       {"name: yes", "name=yes", ""},
		"a date":                   {"name: 2024-01-01", "name=2024-01-01", ""},

		"a number":              {"name: 010", "name=", "XDS0103 s.yaml:1:7: name: a string is needed, not int 010 (put it in quotes)"},
		"a bool":                {"list: [true]", "list[0]=", "XDS0103 s.yaml:1:8: list[0]: a string is needed, not bool true (put it in quotes)"},
		"an empty value":        {"name:", "name=", "XDS0103 s.yaml:1:6: name: a string is needed, not null"},
		"a mapping":             {"name: {a: b}", "name=", "XDS0103 s.yaml:1:7: name: a string is needed, not a mapping"},
		"a list":                {"name: [a]", "name=", "XDS0103 s.yaml:1:7: name: a string is needed, not a list"},
		"a long number":         {"name: 1" + strings.Repeat("0", 150), "name=", "XDS0103 s.yaml:1:7: name: a string is needed, not int 1" + strings.Repeat("0", 99) + "… (put it in quotes)"},
		"no mapping":            {"inner: a", "", "XDS0103 s.yaml:1:8: inner: a mapping is needed, not a string"},
		"an unknown key":        {"neme: a", "", `XDS0102 s.yaml:1:1: unknown key "neme" in a settings file (did you mean "name"?)`},
		"a key without a hint":  {"zzzzzz: a", "", `XDS0102 s.yaml:1:1: unknown key "zzzzzz" in a settings file (there are inner, list, name)`},
		"a misplaced key":       {"inner:\n  list: a", "", `XDS0103 s.yaml:2:3: inner: unknown key "list" in an inner mapping (list belongs to the file)`},
		"a long key":            {long + ": a", "", `XDS0102 s.yaml:1:1: unknown key "` + long[:100] + `…" in a settings file (there are inner, list, name)`},
		"keys after a mistake":  {"inner: {neme: a, name: b}", "inner.name=b", `XDS0103 s.yaml:1:9: inner: unknown key "neme" in an inner mapping (did you mean "name"?)`},
		"a key twice":           {"name: a\nname: b", "name=a", `XDS0105 s.yaml:2:1: duplicate key "name", first on line 1`},
		"two documents":         {"name: a\n---\nname: b", "", "XDS0103 s.yaml:3:1: a settings file is one document"},
		"not YAML":              {"name: [", "", "XDS0101 s.yaml:1:8: did not find expected node content (the file ends here)"},
		"an anchor of itself":   {"inner: &a {name: a, <<: *a}", "inner.name=a", "XDS0103 s.yaml:1:8: inner: nested more than 200 deep"},
		"several mistakes":      {"name: 1\nlist: 2", "name= list=", "XDS0103 s.yaml:1:7: name: a string is needed, not int 1 (put it in quotes)\nXDS0103 s.yaml:2:7: list: a string is needed, not int 2 (put it in quotes)"},
		"the largest file":      {"name: a #" + strings.Repeat("x", MaxFile-9), "name=a", ""},
		"more than the largest": {"name: a #" + strings.Repeat("x", MaxFile-8), "", "XDS0107 s.yaml: the file has 1048577 bytes: at most 1048576 are allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			texts, problems := read(t, c.src)
			if texts != c.texts || problems != c.problems {
				t.Errorf("got  %s\n%s\nwant %s\n%s", texts, problems, c.texts, c.problems)
			}
		})
	}
}

func TestQuotes(t *testing.T) {
	for in, want := range map[string]string{" a ": `" a "`, "a\nb\x1b": `"a\nb\x1b"`, strings.Repeat("é", 60): `"` + strings.Repeat("é", 50) + `…"`} {
		if got := Quoted(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
	if got := Short(" a\n\tb "); got != "a b" {
		t.Errorf("%q", got)
	}
	if v, hint := Scalar(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!float", Value: "0.5"}); v != 0.5 || hint != "put it in quotes" {
		t.Error(v, hint)
	}
	if What(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "a"}) != `the string "a"` {
		t.Error("a string")
	}
}
