package dir

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// Each directory fills its own group, and removes nothing from another.
func TestSourcesFillSeparateGroups(t *testing.T) {
	st := store.New()
	of := func(group string) []string {
		var names []string
		for r := range st.Snapshot().View(group).Table(xds.Cluster).All() {
			names = append(names, r.Name)
		}
		return names
	}
	sources := map[string]*Source{}
	for _, group := range []string{"edge", "internal"} {
		root := t.TempDir()
		for _, name := range []string{"shared", group} {
			if err := os.WriteFile(filepath.Join(root, name+".yaml"), []byte(clusters(name)), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		sources[group] = New(root, st, Options{Log: slog.New(slog.DiscardHandler), Group: group})
		if _, err := sources[group].Load(); err != nil {
			t.Fatal(err)
		}
	}
	if st.Snapshot().View(store.DefaultGroup) != nil {
		t.Error("the default group is filled, too")
	}
	if err := os.Remove(filepath.Join(sources["edge"].root, "edge.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, err := sources["edge"].Load(); err != nil {
		t.Fatal(err)
	}
	if edge, internal := of("edge"), of("internal"); len(edge) != 1 || len(internal) != 2 {
		t.Errorf("edge has %v, internal has %v", edge, internal)
	}

	var kept LastGood
	first := New(sources["internal"].root, store.New(), Options{Group: "internal", Keep: func(c LastGood) { kept = c }})
	if _, err := first.Load(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(first.root, "internal.yaml")); err != nil { // then it is stored as recently removed
		t.Fatal(err)
	}
	if _, err := first.Load(); err != nil {
		t.Fatal(err)
	}
	st = store.New()
	if err := New(t.TempDir(), st, Options{Group: "internal"}).Restore(kept); err != nil || len(of("internal")) != 1 {
		t.Error(of("internal"), err)
	}
}

// An error uses the name of an option that Options.Flag returns.
func TestErrorsNameOptions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(path, []byte(clusters("a")), 0o666); err != nil {
		t.Fatal(err)
	}
	for want, flag := range map[string]func(string) string{
		"(Options.MaxFile)": nil, "(--MaxFile)": func(option string) string { return "--" + option },
	} {
		c := Check(path, Options{MaxFile: 10, Flag: flag})
		if len(c.Errors) != 1 || !strings.HasSuffix(c.Errors[0].Error(), want) {
			t.Errorf("%v: want %s", c.Errors, want)
		}
	}
}
