package main

import (
	"strings"
	"testing"
)

const example = `package x

import (
	"fmt"
	"strings"
)

const limit = 3

type list[T any] struct{ of []T }

func (l *list[T]) add(t T) { l.of = append(l.of, t) }

func (list[T]) size(int, ...string) int { return 0 }

func each[K comparable, V any](m map[K]V, _ int, f func(K, V)) bool {
	for k, v := range m {
		f(k, v)
	}
	return len(m) > 0
}

func shout(s string) string { return strings.ToUpper(s) }

func safely(f func()) {
	defer func() { fmt.Println(recover()) }()
	f()
}

func init() { fmt.Println(limit) }
`

// A mutant stands beside others if it changes nothing but the bodies of
// functions that can be called by another.
func TestStandsBeside(t *testing.T) {
	f, err := parseFile(example)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		old, new string
		want     string // functions that are changed
	}{
		{"l.of = append(l.of, t)", "", "list.add"},
		{"return 0", "return 1", "list.size"},
		{"len(m) > 0", "len(m) > 1", "each"},
		{"return strings.ToUpper(s)", "return strings.ToLower(s)", "shout"},
		{"return strings.ToUpper(s)", "return s", ""}, // its import is not used: a compiler objects
		{"limit = 3", "limit = 4", ""},
		{"of []T", "of []*T", ""},
		{"m map[K]V, _ int", "m map[K]V, _ uint", ""},
		{"\tf()\n", "", ""},
		{"Println(limit)", "Println()", ""},
		{"func shout", "func more() {}\n\nfunc shout", ""},
		{"return 0", "return", "list.size"}, // the compiler's to say
		{"return 0", "return (", ""},
	} {
		var got []string
		for _, v := range f.with(7, strings.Replace(example, tt.old, tt.new, 1)) {
			got = append(got, v.key)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%q for %q changes %v, want %q", tt.new, tt.old, got, tt.want)
		}
	}
}

// A function asks who is meant, and calls it with all that it was called with.
func TestDispatch(t *testing.T) {
	f, err := parseFile(example)
	if err != nil {
		t.Fatal(err)
	}
	s := source{file: f}
	for i, m := range [][2]string{
		{"l.of = append(l.of, t)", ""},
		{"return 0", "return 1"},
		{"len(m) > 0", "len(m) > 1"},
		{"len(m) > 0", "len(m) > 2"},
	} {
		s.add(f.with(i+1, strings.Replace(example, m[0], m[1], 1)))
	}
	s.drop(4)
	text := s.String()
	for _, want := range []string{
		"func (l *list[T]) add(t T) { switch mutantInForce { case 1: l.mutant1_add(t); return; }; l.of = append(l.of, t) }\n",
		"switch mutantInForce { case 3: return mutant3_each[K, V](m, _",
		"//line mutant2.go:1\nfunc (list[T]) mutant2_size(int, ...string) int { return 1 }\n",
		"//line mutant3.go:1\nfunc mutant3_each[K comparable, V any](m map[K]V, _ int, f func(K, V)) bool {\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in\n%s", want, text)
		}
	}
	if strings.Contains(text, "mutant4") {
		t.Error("mutant 4 was dropped, and stands there")
	}
	with, _, _ := strings.Cut(text, "\n//line")
	if strings.Count(with, "\n") != strings.Count(example, "\n") {
		t.Error("lines have moved")
	}
}
