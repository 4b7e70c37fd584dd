package lastgood

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// twenty returns the content of twenty resources, which are large together.
func twenty() map[string]string {
	many := map[string]string{}
	for i := range 20 {
		many[fmt.Sprintf("r%02d", i)] = "first"
	}
	return many
}

// of returns a configuration that is large enough for appended changes.
func of(at int, root, edge map[string]string) Config {
	list := func(in map[string]string) (all []Resource) {
		for name, body := range in {
			r := xds.NewResource(xds.Cluster, name, []byte(body+strings.Repeat("x", minGrowing/16)))
			all = append(all, Resource{Resource: r, File: name + ".yaml", Line: 1, Secret: strings.HasPrefix(body, "secret")})
		}
		slices.SortFunc(all, func(a, b Resource) int { return strings.Compare(a.Name, b.Name) })
		return all
	}
	return Config{
		At: time.Unix(int64(at), 0), Mark: fmt.Sprintf("mark-%d", at), Types: []Type{{Type: xds.Cluster, Resources: list(root)}},
		Groups: []Group{{Name: "edge", Types: []Type{{Type: xds.Cluster, Version: edge["r01"], Resources: list(edge)}}, Peaks: []Peak{{xds.Cluster.URL, at / 8, time.Unix(int64(at/8), 0)}}}},
	}
}

// textOf returns a configuration as text.
func textOf(c Config) string {
	var s strings.Builder
	fmt.Fprintln(&s, c.At.Unix(), c.Mark, len(c.Types), len(c.Gone))
	for _, d := range c.Definitions {
		fmt.Fprintf(&s, "%s %s\n", d.Path, d.Data)
	}
	for _, g := range append([]Group{{Types: c.Types, Gone: c.Gone, Peaks: c.Peaks}}, c.Groups...) {
		fmt.Fprintln(&s, g.Name, len(g.Peaks))
		for _, p := range g.Peaks {
			fmt.Fprintln(&s, p.URL, p.N, p.Until.Unix())
		}
		for _, t := range append(slices.Clone(g.Types), g.Gone...) {
			fmt.Fprintln(&s, t.URL, t.Version, t.Withheld)
			for _, r := range t.Resources {
				fmt.Fprintln(&s, r.Name, r.Version, r.Sum, r.File, r.Line, r.Col, r.Path, r.OnDemand)
			}
		}
	}
	return s.String()
}

// The cost of a change of a large configuration depends on the size of the change: it is appended, and
// the file is rewritten now and then. Wherever a program was killed during a write, the file has the
// last complete configuration.
func TestSAFE10ChangesAreAppended(t *testing.T) {
	k, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(k.Dir(), name)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	root, edge := map[string]string{}, map[string]string{}
	for i := range 20 {
		root[fmt.Sprintf("r%02d", i)] = "first"
	}
	var was []byte
	var before string
	grew := 0
	for at := range 60 {
		in := root
		if r.IntN(2) == 0 {
			in = edge
		}
		at++
		switch one := fmt.Sprintf("r%02d", r.IntN(24)); r.IntN(4) {
		case 0:
			if len(root) > 17 || in[one] == "" {
				delete(in, one)
			}
		default:
			in[one] = fmt.Sprint(at)
		}
		c := of(at, root, edge)
		if r.IntN(8) == 0 {
			c.Gone = []Type{{Type: xds.Route, Resources: []Resource{{Resource: xds.NewResource(xds.Route, "gone", []byte("b"))}}}}
		}
		if err := k.Save(c); err != nil {
			t.Fatal(err)
		}
		got, err := k.Load()
		if err != nil || textOf(got) != textOf(c) {
			t.Fatalf("seed %d: %v\n%s\nwant\n%s", seed, err, textOf(got), textOf(c))
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if was != nil && bytes.HasPrefix(data, was) {
			grew++
			if n := len(data) - len(was); n > 3*minGrowing/16 {
				t.Errorf("one change takes %d bytes", n)
			}
			for range 5 {
				cut := len(was) + r.IntN(len(data)-len(was))
				if got, err := parse(data[:cut]); err != nil || textOf(got) != before {
					t.Fatalf("seed %d: cut at %d of %d to %d: %v", seed, cut, len(was), len(data), err)
				}
			}
			// Only a part of it was written to the disk.
			if got, err := parse(append(slices.Clone(was), make([]byte, len(data)-len(was))...)); err != nil || textOf(got) != before {
				t.Error(err)
			}
			other := slices.Clone(data)
			other[r.IntN(len(was)-len(formatParts))+len(formatParts)] ^= 1
			if got, err := parse(other); err == nil && textOf(got) == textOf(c) {
				t.Errorf("seed %d: a damaged file is read", seed)
			}
		}
		was, before = data, textOf(c)
	}
	if grew < 30 || grew == 59 {
		t.Errorf("grew %d times", grew)
	}
}

// If the file is not the one that was written, or a write failed, the next write replaces the file.
func TestSAFE10UnknownFileIsRewritten(t *testing.T) {
	k, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(k.Dir(), name)
	many := twenty()
	at := 0
	save := func() {
		t.Helper()
		at++
		many["r03"] = fmt.Sprint(at)
		c := of(at, many, nil)
		if err := k.Save(c); err != nil {
			t.Fatal(err)
		}
		if got, err := k.Load(); err != nil || textOf(got) != textOf(c) {
			t.Fatal(err)
		}
	}
	save()
	save()
	for name, damage := range map[string]func() error{
		"cut":     func() error { return os.Truncate(path, 100) },
		"gone":    func() error { return os.Remove(path) },
		"a link":  func() error { return errors.Join(os.Remove(path), os.Symlink("/dev/null", path)) },
		"another": func() error { return os.WriteFile(path, []byte("other"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			save()
			save()
		})
	}
	// The file is rewritten before a read of it takes long.
	f, err := os.Open(path) // while it is open, no later file has its inode number
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, _ := f.Stat()
	for range maxParts + 1 {
		many["r03"] = "" // the smallest change
		at++
		c := of(at, many, nil)
		if err := k.Save(c); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := os.Stat(path); err != nil || os.SameFile(info, now) {
		t.Error("the file was not rewritten", err)
	}
}

// A secret that changed or was removed does not stay on the disk.
func TestSAFE10RemovedSecretsAreRewritten(t *testing.T) {
	k, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	many := twenty()
	at := 0
	has := func(text string, want bool) {
		t.Helper()
		at++
		if err := k.Save(of(at, many, nil)); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(k.Dir(), name))
		if err != nil || bytes.Contains(data, []byte(text)) != want {
			t.Errorf("%q is there: %t, %v", text, !want, err)
		}
	}
	many["r01"] = "secret one"
	has("secret one", true)
	many["r02"] = "something else"
	has("secret one", true)
	many["r01"] = "secret two"
	has("secret one", false)
	delete(many, "r01")
	has("secret two", false)
	many["r04"] = "secret three" // a secret is added, and none is removed
	has("secret three", true)
	many["r04"] = "none"
	has("secret three", false)
}

// Any series of configurations is read as it was written. If a part cannot express a change, the file
// is rewritten.
func TestSAFE10AnyChangeIsReadBack(t *testing.T) {
	many := twenty()
	one := func(t *xds.Type, name string, secret bool) []Type {
		return []Type{{Type: t, Resources: []Resource{{Resource: xds.NewResource(t, name, []byte("b")), Secret: secret}}}}
	}
	first := func() Config {
		c := of(1, many, map[string]string{"a": "one"})
		c.Types = append(append(c.Types, one(xds.Secret, "s", false)...), one(xds.Secret.Legacy(), "s2", false)...)
		c.Gone = one(xds.Listener, "went", true)
		c.Definitions = []Definition{{"edge/group.yaml", []byte("match: {}")}}
		return c
	}
	other := func(r Resource, version string, onDemand bool) Resource {
		r.Resource = r.Copy()
		r.OnDemand = onDemand
		r.Seal(version)
		return r
	}
	for what, is := range map[string]struct {
		change func(c *Config)
		anew   bool
	}{
		"several": {func(c *Config) {
			all := of(2, map[string]string{"r01": "second", "r17": "second", "s": "new"}, nil).Types[0].Resources
			was := c.Types[0].Resources
			c.Types[0].Resources = slices.Concat(was[:1], all[:1], was[2:4], was[6:17], all[1:2], was[18:19], all[2:])
		}, false},
		"a version of a type":                  {func(c *Config) { c.Types[0].Version = "next" }, false},
		"a place":                              {func(c *Config) { c.Types[0].Resources[3].Line = 9 }, false},
		"a version":                            {func(c *Config) { c.Types[0].Resources[3] = other(c.Types[0].Resources[3], "next", false) }, false},
		"on demand":                            {func(c *Config) { c.Types[0].Resources[3] = other(c.Types[0].Resources[3], "", true) }, false},
		"removed resources of a group":         {func(c *Config) { c.Groups[0].Gone = one(xds.Route, "gone", false) }, false},
		"removed resources with a secret":      {func(c *Config) { c.Gone = nil }, true},
		"a Secret":                             {func(c *Config) { c.Types[1].Resources = nil }, true},
		"a Secret of v2":                       {func(c *Config) { c.Types[2].Resources = nil }, true},
		"withheld":                             {func(c *Config) { c.Types[0].Withheld = true }, true},
		"a type less":                          {func(c *Config) { c.Types = c.Types[:2] }, true},
		"a group less":                         {func(c *Config) { c.Groups = nil }, true},
		"a group of another name":              {func(c *Config) { c.Groups[0].Name = "other" }, true},
		"a group to which other nodes go":      {func(c *Config) { c.Definitions[0].Data = []byte("match: none") }, true},
		"a group whose definition was removed": {func(c *Config) { c.Definitions = nil }, true},
	} {
		t.Run(what, func(t *testing.T) {
			k, err := Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			var files [2][]byte
			next := first()
			is.change(&next)
			for i, c := range []Config{first(), next} {
				if err := k.Save(c); err != nil {
					t.Fatal(err)
				}
				if got, err := k.Load(); err != nil || textOf(got) != textOf(c) {
					t.Errorf("%v\n%s\nwant\n%s", err, textOf(got), textOf(c))
				}
				if files[i], err = os.ReadFile(filepath.Join(k.Dir(), name)); err != nil {
					t.Fatal(err)
				}
			}
			if anew := !bytes.HasPrefix(files[1], files[0]); anew != is.anew {
				t.Errorf("written anew: %t", anew)
			}
		})
	}
}

// A damaged file is an error, unless only an incomplete last part is damaged.
func TestSAFE10DamagedPart(t *testing.T) {
	k, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	many := twenty()
	var files [3][]byte
	for i := range files {
		many["r03"] = fmt.Sprint(i)
		if err := k.Save(of(i, many, nil)); err != nil {
			t.Fatal(err)
		}
		if files[i], err = os.ReadFile(filepath.Join(k.Dir(), name)); err != nil {
			t.Fatal(err)
		}
	}
	flipped := slices.Clone(files[2])
	flipped[(len(files[0])+len(files[1]))/2] ^= 1
	for what, data := range map[string][]byte{
		"in its middle":     flipped,
		"in its first part": files[0][:len(files[0])-1],
		"at its begin":      []byte(formatParts),
		"an invalid length": append([]byte(formatParts), 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1),
	} {
		if c, err := parse(data); !errors.Is(err, errDamaged) {
			t.Errorf("%s: %v, %v", what, c.At, err)
		}
	}
}
