package groups_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/groups"
)

// Each error is reported with its position.
func TestParseProblems(t *testing.T) {
	deep := strings.Repeat("{not: ", 20) + "{}" + strings.Repeat("}", 20)
	for _, c := range []struct{ what, file, want string }{
		{"a near key", "match:\n  clsuter: edge\n", `XDS0701 f:2:3: match: unknown key "clsuter" in a match (did you mean "cluster"?)`},
		{"a key of the level below", "cluster: edge\n", `XDS0701 f:1:1: unknown key "cluster" in group.yaml (it belongs below match)`},
		{"a key of the locality", "match: {zone: a}\n", `XDS0701 f:1:9: match: unknown key "zone" in a match (it belongs below locality)`},
		{"a key like none", "match: {locality: {planet: a}}\n", `XDS0701 f:1:20: match.locality: unknown key "planet" in locality (there are region, sub_zone, zone)`},
		{"a key twice", "name: a\nname: b\n", `XDS0105 f:2:1: duplicate key "name", first on line 1`},
		{"no YAML", "match: {\n", `XDS0101 f:1:9: `},
		{"two documents", "name: a\n---\nname: b\n", `XDS0103 f:3:1: a group.yaml is one document`},
		{"a list", "- a\n", `XDS0103 f:1:1: a mapping is needed, not a list`},
		{"nothing to match", "match:\n", `XDS0103 f:1:7: match: a mapping is needed, not null`},
		{"a number for a string", "match: {id: 5}\n", `XDS0103 f:1:13: match.id: a string is needed, not int 5 (put it in quotes)`},
		{"a mapping for a string", "match: {id: {}}\n", `XDS0103 f:1:13: match.id: a string is needed, not a mapping`},
		{"a list in a list", "match: {id: [[a]]}\n", `XDS0103 f:1:14: match.id[0]: a string is needed, not a list`},
		{"null", "match: {metadata: {env: ~}}\n", `XDS0103 f:1:25: match.metadata.env: a string is needed, not null`},
		{"not a number", "match: {metadata: {env: .nan}}\n", `XDS0103 f:1:25: match.metadata.env: a string is needed, not float .nan`},
		{"an escape", `match: {id: 'a\b'}`, `XDS0702 f:1:13: match.id: \ must precede one of *, ?, {, } and \`},
		{"a long pattern", "match: {id: [ok, " + strings.Repeat("a", 513) + "]}", `XDS0702 f:1:18: match.id[1]: a pattern of 513 bytes: at most 512 are allowed`},
		{"a question mark", `match: {cluster: [a, "b?"]}`, `XDS0702 f:1:22: match.cluster[1]: ? has no meaning in a pattern: write \? for the character`},
		{"alternatives", `match: {metadata: {a: "{b,c}"}}`, `XDS0702 f:1:23: match.metadata.a: { has no meaning here: write a list for one of several values, and \{ for the character`},
		{"no list of matches", "match: {any: {}}\n", `XDS0103 f:1:14: match.any: a list of matches is needed, not a mapping`},
		{"in a list of matches", "match: {any: [{id: a}, {name: b}]}\n", `XDS0701 f:1:25: match.any[1]: unknown key "name" in a match (there are all, any, cel, cluster, id, locality, metadata, not, user_agent_name, user_agent_version)`},
		{"nested", "match: " + deep, `XDS0702 f:1:110: match` + strings.Repeat(".not", 17) + `: matches are nested deeper than 16`},
		{"too much", "match: {id: [" + strings.Repeat("a,", 10_001) + "]}", `XDS0702 f:1:20012: match.id[9999]: more than 10000 values and matches in one file`},
		{"aliases of aliases", "match:\n  all:\n  - &a {id: x}\n  - &b {all: [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]}\n  - &c {all: [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]}\n  - &d {all: [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]}\n  - &e {all: [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]}\n", `XDS0702 f:3:`},
		{"an alias of itself", "match: &a {not: *a}", `XDS0702 f:1:8: match` + strings.Repeat(".not", 17) + `: matches are nested deeper than 16`},
		{"metadata within itself", "match: {metadata: &a {b: *a}}", `XDS0702 f:1:19: match.metadata` + strings.Repeat(".b", 32) + `: conditions for metadata are limited to a depth of 32 keys`},
		{"an empty expression", "match: {cel: ''}\n", `XDS0702 f:1:14: match.cel: an expression is needed`},
		{"an empty name", "name: ''\n", `XDS0703 f:1:7: name: a group needs a name`},
		{"a name that is a number", "name: 5\n", `XDS0103 f:1:7: name: a string is needed, not int 5 (put it in quotes)`},
		{"a priority", "priority: high\n", `XDS0103 f:1:11: priority: a whole number of 32 bits is needed, not the string "high"`},
		{"a large priority", "priority: 3000000000\n", `XDS0103 f:1:11: priority: a whole number of 32 bits is needed, not int 3000000000`},
		{"on_error", "on_error: stop\n", `XDS0103 f:1:11: on_error: on_error is alone or all, not "stop"`},
		{"otherwise", "otherwise: ''\n", `XDS0103 f:1:12: otherwise: otherwise is "default", "refuse" or the name of a group`},
		{"a large file", "#" + strings.Repeat(" ", 1<<20), `XDS0107 f: the file has 1048577 bytes: at most 1048576 are allowed`},
	} {
		t.Run(c.what, func(t *testing.T) {
			_, problems := groups.Parse("f", []byte(c.file))
			got := strings.TrimSpace(told(problems))
			if len(problems) != 1 || !strings.HasPrefix(got, c.want) || strings.HasSuffix(c.want, ")") && got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// Metadata of a node may come from a file that Envoy has read. A value that Envoy reads differently is a finding.
func TestFILE7MetadataThatEnvoyReadsDifferently(t *testing.T) {
	for src, differs := range map[string]bool{
		"yes": true, "010": true, "1.10": true, "0o17": true, "9007199254740993": true, "!!str 5": true,
		"2024_11_29": false, "0b11": false, "1_000": false, "10": false, "'010'": false, "true": false, "v1": false,
	} {
		_, problems := groups.Parse("f", []byte("match: {id: [y, n], metadata: {v: ["+src+", x]}}\n"))
		if (len(problems) == 1 && problems[0].Warning && problems[0].Code == findings.ReadDifferently) != differs || len(problems) > 1 {
			t.Errorf("%s: %s", src, told(problems))
		}
	}
	d, problems := groups.Parse("f", []byte("match: {metadata: {a: 2024_11_29, b: 0b11}}\n"))
	if got := fmt.Sprint(d.Match.Metadata); got != "[{[a] [2024_11_29]} {[b] [0b11]}]" || len(problems) > 0 {
		t.Error(got, told(problems))
	}
}

// Valid files in all forms of YAML.
func TestParse(t *testing.T) {
	for _, file := range []string{"", "# nothing\n", "{}", "name: a\nmatch: {}\npriority: -1\non_error: all\notherwise: refuse\ninclude: [a, b]\n"} {
		if _, problems := groups.Parse("f", []byte(file)); len(problems) > 0 {
			t.Errorf("%q: %s", file, told(problems))
		}
	}
	d, problems := groups.Parse("f", []byte("on_error: alone\nmatch:\n  <<: &x {id: \"2026-01-01\"}\n  any: [*x, {cluster: 2026-01-01}]\n  metadata: {n: 0x10, big: 18446744073709551615, f: 1.5, s: '5', b: false}\n"))
	if len(problems) != 2 || problems[0].Code != findings.ReadDifferently || problems[1].Code != findings.ReadDifferently || !d.Alone || d.Match.ID[0] != "2026-01-01" || d.Match.Any[1].Cluster[0] != "2026-01-01" {
		t.Errorf("%+v %s", d, told(problems))
	}
	if got := fmt.Sprint(d.Match.Metadata); got != "[{[n] [16]} {[big] [1.8446744073709552e+19]} {[f] [1.5]} {[s] [5]} {[b] [false]}]" {
		t.Error(got)
	}
}

// Errors across groups.
func TestNewProblems(t *testing.T) {
	many := ""
	for i := range 102 {
		many += fmt.Sprintf("\n-- g%d/group.yaml --\ninclude: [g%d]\nmatch: {}", i, i+1)
	}
	for _, c := range []struct{ what, archive, want string }{
		{"a circle is named whole", "-- a/group.yaml --\nmatch: {}\ninclude: [b]\n-- b/group.yaml --\ninclude: [c]\n-- c/group.yaml --\ninclude: [x, a]\n-- x/group.yaml --\n",
			`XDS0705 config/c/group.yaml:1:14: include[1]: "a" includes "b", "b" includes "c", "c" includes "a"`},
		{"a group that includes itself", "-- a/group.yaml --\ninclude: [a]\nmatch: {}\n", `XDS0705 config/a/group.yaml:1:11: include[0]: "a" includes "a"`},
		{"an unknown group", "-- edge/group.yaml --\nmatch: {}\n-- b/group.yaml --\nmatch: {}\ninclude: [egde]\n", `XDS0704 config/b/group.yaml:2:11: include[0]: there is no group "egde" (did you mean "edge"?)`},
		{"otherwise", "-- group.yaml --\notherwise: guest\n", `XDS0704 config/group.yaml:1:12: otherwise: there is no group "guest" (it is "default", "refuse" or the name of a group)`},
		{"otherwise below", "-- a/group.yaml --\nmatch: {}\notherwise: refuse\n", `XDS0706 config/a/group.yaml:2:12: otherwise: only the root may have "otherwise"`},
		{"the root has no rule", "-- group.yaml --\nmatch: {}\non_error: alone\n", `XDS0706 config/group.yaml:1:8: match: the root has no "match" (the root is the group of nodes that match no other)
XDS0706 config/group.yaml:2:11: on_error: the root has no "on_error" (the root is the group of nodes that match no other)`},
		{"one name twice", "-- a/group.yaml --\nmatch: {}\n-- b/group.yaml --\nname: a\nmatch: {}\n", `XDS0703 config/b/group.yaml:1:7: name: two groups have the name "a" (the other is in config/a/group.yaml)`},
		{"default is the root", "-- a/group.yaml --\nname: default\n", `XDS0706 config/a/group.yaml:1:7: name: the root has no "name" (the root is the group of nodes that match no other)`},
		{"a name with a comma", "-- a/group.yaml --\nname: a,b\nmatch: {}\n", `XDS0703 config/a/group.yaml:1:7: name: a name must not have commas, control characters or invisible characters`},
		{"a directory with a comma", "-- a,b/group.yaml --\nmatch: {}\n", `XDS0703 config/a,b/group.yaml:1:1: name: a name must not have commas, control characters or invisible characters`},
		{"a long name", "-- a/group.yaml --\nmatch: {}\nname: " + strings.Repeat("n", 257) + "\n", `XDS0703 config/a/group.yaml:2:7: name: a name of 257 bytes: at most 256 are allowed`},
		{"refuse is no name", "-- refuse/group.yaml --\nmatch: {}\n", `XDS0703 config/refuse/group.yaml:1:1: name: the name "refuse" is reserved`},
		{"too many", many[1:] + "\n-- g102/group.yaml --\n", `XDS0704 config/g0/group.yaml:1:10: include: group "g0" includes more than 100 groups
XDS0704 config/g1/group.yaml:1:10: include: group "g1" includes more than 100 groups`},
		{"an expression", "-- a/group.yaml --\nmatch:\n  any:\n  - cel: node.clsuter == \"x\"\n", `XDS0702 config/a/group.yaml:3:10: match.any[0].cel: at character 5 of the expression: undefined field 'clsuter': node has id, cluster, locality, metadata, user_agent_name and user_agent_version, and locality region, zone and sub_zone`},
		{"a rule of nobody", "-- a/group.yaml --\nmatch: {id: a, any: []}\n", `XDS0707 config/a/group.yaml:1:8: warning: match: no node can match the rule of group "a"`},
		{"a list of nothing", "-- a/group.yaml --\nmatch: {cluster: []}\n", `XDS0707 config/a/group.yaml:1:8: warning: match: no node can match the rule of group "a"`},
		{"not everybody", "-- a/group.yaml --\nmatch: {not: {all: [{any: [{id: x}, {}]}]}}\n", `XDS0707 config/a/group.yaml:1:8: warning: match: no node can match the rule of group "a"`},
		{"turned around twice", "-- a/group.yaml --\nmatch: {any: [{not: {not: {any: []}}}]}\n", `XDS0707 config/a/group.yaml:1:8: warning: match: no node can match the rule of group "a"`},
		{"no rule", "-- a/group.yaml --\ninclude: [b]\n-- b/group.yaml --\n", `XDS0707 config/a/group.yaml:1:1: warning: name: no node gets group "a": it has no rule, and no group with nodes includes it (add match, or include it in another group)
XDS0707 config/b/group.yaml:1:1: warning: name: no node gets group "b": it has no rule, and no group with nodes includes it (add match, or include it in another group)`},
		{"a name that looks like the root's", "-- Default/group.yaml --\nmatch: {}\n", `XDS0703 config/Default/group.yaml:1:1: name: "Default" looks like the reserved name "default"`},
		{"a name that looks like none", "-- a/group.yaml --\nname: REFUSE\nmatch: {}\n", `XDS0703 config/a/group.yaml:1:7: name: "REFUSE" looks like the reserved name "refuse"`},
		{"letters that look alike", "-- a/group.yaml --\nname: teams/\u0440ay\nmatch: {}\n", `XDS0703 config/a/group.yaml:1:7: name: a word of the name has letters of Cyrillic and of Latin, which look alike`},
		{"a mark that is not seen", "-- a/group.yaml --\nname: \"edge\\u200b\"\nmatch: {}\n", `XDS0703 config/a/group.yaml:1:7: name: a name must not have commas, control characters or invisible characters`},
		{"text that is turned", "-- a/group.yaml --\nname: \"a\\u202eb\"\nmatch: {}\n", `XDS0703 config/a/group.yaml:1:7: name: a name must not have commas, control characters or invisible characters`},
		{"a space that is none", "-- a/group.yaml --\nname: \"a\\u00a0b\"\nmatch: {}\n", `XDS0703 config/a/group.yaml:1:7: name: a name must not have commas, control characters or invisible characters`},
		{"a space at the end", "-- a/group.yaml --\nname: \"edge \"\nmatch: {}\n", `XDS0703 config/a/group.yaml:1:7: name: a name must not begin or end with a space`},
		{"words of two scripts", "-- a/group.yaml --\nname: teams/\u043f\u043b\u0430\u0442 \u03b1-test \u6771\u4eac 2\nmatch: {}\n", ``},
		{"patterns of other languages", "-- a/group.yaml --\nmatch:\n  id: \"web-(a|b)\"\n  any: [{cluster: \"x|y\"}, {user_agent_name: ^envoy}]\n  locality: {region: \"eu$\", zone: \"[ab]\"}\n  metadata: {a: \"[x|y]\"}\n", `XDS0708 config/a/group.yaml:2:3: warning: match: id: "web-(a|b)" matches only this text: in a pattern only * and ** have a meaning (for one of several values write a list, and for a regular expression cel: node.id.matches(...))
XDS0708 config/a/group.yaml:2:3: warning: match: locality.region: "eu$" matches only this text: in a pattern only * and ** have a meaning (for one of several values write a list, and for a regular expression cel: node.id.matches(...))
XDS0708 config/a/group.yaml:2:3: warning: match: locality.zone: "[ab]" matches only this text: in a pattern only * and ** have a meaning (for one of several values write a list, and for a regular expression cel: node.id.matches(...))
XDS0708 config/a/group.yaml:3:9: warning: match: cluster: "x|y" matches only this text: in a pattern only * and ** have a meaning (for one of several values write a list, and for a regular expression cel: node.id.matches(...))
XDS0708 config/a/group.yaml:3:27: warning: match: user_agent_name: "^envoy" matches only this text: in a pattern only * and ** have a meaning (for one of several values write a list, and for a regular expression cel: node.id.matches(...))`},
		{"patterns of this one", "-- a/group.yaml --\nmatch: {id: [\"a*.b(1)\", \"\\\\{x\\\\}\", \"$a^\", \"]a[\"]}\n", ``},
		{"all is well", "-- group.yaml --\notherwise: c\n-- a/group.yaml --\nmatch: {}\ninclude: [b]\n-- b/group.yaml --\n-- c/group.yaml --\n", ``},
	} {
		t.Run(c.what, func(t *testing.T) {
			rules, problems := load(t, c.archive)
			if got := strings.TrimSpace(told(problems)); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			failed := false
			for _, p := range problems {
				failed = failed || !p.Warning
				if k, ok := findings.Explain(string(p.Code)); !ok || k.Warning != p.Warning {
					t.Errorf("%s is not explained, or of another severity", p.Code)
				}
			}
			if failed != (rules == nil) {
				t.Errorf("%d problems, and rules: %v", len(problems), rules != nil)
			}
		})
	}
	if _, problems := groups.New([]groups.Definition{{Name: "a"}, {Name: "a"}, {Name: ""}}, groups.Options{}); told(problems) != "XDS0703 group \"\": name: a group needs a name\nXDS0703 group \"a\": name: two groups have the name \"a\"\n" {
		t.Error(told(problems))
	}
	if _, problems := groups.New([]groups.Definition{{Name: "a", Match: &groups.Match{CEL: "true"}}}, groups.Options{}); !strings.Contains(told(problems), "this program has no CEL") {
		t.Error(told(problems))
	}
}
