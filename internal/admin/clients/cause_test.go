package clients

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

func TestNormalise(t *testing.T) {
	const pgv = "Proto constraint validation failed (ClusterValidationError.Name: value length must be at least 1 characters)"
	for _, c := range []struct{ name, text, want string }{
		{"as it is", "Error adding/updating listener(s) a: cannot bind '0.0.0.0:80': Address already in use", "Error adding/updating listener(s) a: cannot bind '0.0.0.0:80': Address already in use"},
		{"Envoy's dump", "goo.gle/debugproto    \nname: \"badP\"\naddress {\n  password: \"x\"\n}\n: " + pgv, pgv},
		{"the same in another build", "goo.gle/debugonly \nname: \"badP\"\naddress {\n  password: \"x\"\n}\n: " + pgv, pgv},
		{"a dump in the middle", "Error adding/updating listener(s) a: goo.gle/debugstr  \nx: 1\n: no good", "Error adding/updating listener(s) a: … no good"},
		{"a dump that was cut", "before goo.gle/debugstr  \nx: 1\ny: 2", "before …"},
		{"a mark without a dump", "goo.gle/debugonly   malformed IP address: x", "malformed IP address: x"},
		{"what the server has left of it", "… : " + pgv, pgv},
		{"spaces and control bytes", "a \t b\n\nc\x1b[31md\x00", "a b c [31md"},
		{"no text", "", ""},
		{"no UTF-8", "a\xff\xfeb", "a\uFFFDb"},
	} {
		if got := Normalise(c.text); got != c.want {
			t.Errorf("%s: %q, not %q", c.name, got, c.want)
		}
	}
	if long := Normalise(strings.Repeat("ä", 1<<20)); len(long) > maxText+8 {
		t.Errorf("%d bytes", len(long))
	}
	for _, text := range []string{strings.Repeat(marker, 10_000), strings.Repeat(marker+" ", 10_000) + "x"} {
		_ = Normalise(text)
	}
}

func FuzzNormalise(f *testing.F) {
	f.Add("goo.gle/debugproto    \nname: \"badP\"\n: Proto constraint validation failed (x)", "badP")
	f.Add("a\xff", "a")
	f.Fuzz(func(t *testing.T, text, name string) {
		once := Normalise(text)
		if len(once) > maxText+8 || strings.Contains(once, marker) && len(text) < maxText {
			t.Errorf("%q", once)
		}
		_ = mentions(once, name)
	})
}

func TestMentions(t *testing.T) {
	for _, c := range []struct {
		text, name string
		want       bool
	}{
		{"cluster(s) badE: cannot", "badE", true}, {"cluster(s) badE2: cannot", "badE", false}, {"in route rt", "rt", true}, {"in route rt.", "rt", true},
		{"route 'rt', and", "rt", true}, {"host a.b is", "a", false}, {"host a.b is", "b", true}, {"aa a", "a", true}, {"", "a", false}, {"a", "", false},
		{"xa a-b a", "a", true}, {"x/a", "a", false}, {"äa a", "a", true}, {"äa", "a", false},
	} {
		if got := mentions(c.text, c.name); got != c.want {
			t.Errorf("%q %q: %v", c.text, c.name, got)
		}
	}
}

// A cause has the names in the text; partly reports whether the response had more resources, which the
// client may use.
func TestCauseOf(t *testing.T) {
	for _, c := range []struct {
		name, text string
		names      []string
		all        int
		want       string
	}{
		{"it names one of three", "cluster(s) b: bad", []string{"b", "a", "c"}, 3, "[b] true"},
		{"it names all", "cluster(s) b, a: bad", []string{"b", "a"}, 2, "[b a] false"},
		{"it names none of two", "Invalid duration", []string{"a", "b"}, 2, "[a b] true"},
		{"it names none of many", "Invalid duration", []string{"a", "b", "c", "d", "e"}, 300, "[] true"},
		{"there is one", "Invalid duration", []string{"a"}, 1, "[a] false"},
		{"what it answers is not remembered", "Invalid duration", nil, 0, "[] false"},
	} {
		got, partly := causeOf(&protocol.Event{Type: xds.Cluster, Names: c.names, Error: &xds.Status{Message: c.text}}, c.all)
		if s := fmt.Sprint(got.names, " ", partly); s != c.want || got.text != c.text {
			t.Errorf("%s: %s %q, not %s", c.name, s, got.text, c.want)
		}
	}
	if c, _ := causeOf(&protocol.Event{Type: xds.Cluster}, 1); c.text != "" { // an event without error_detail
		t.Error(c)
	}
}

// The memory for refusals is limited, even if all refusals differ.
func TestCausesAreBounded(t *testing.T) {
	var cs causes
	var taken []*cause
	for i := range 3 * maxCauses {
		text := fmt.Sprint(i)
		if i%2 == 0 {
			text += strings.Repeat("x", maxText)
		}
		taken = append(taken, cs.intern(newCause(xds.Cluster, text, []string{strings.Repeat("n", maxName)})))
	}
	if cs.bytes > maxCauseBytes+1000 || len(cs.known) > maxCauses+1 {
		t.Errorf("%d causes of %d bytes", len(cs.known), cs.bytes)
	}
	for _, c := range taken {
		cs.release(c)
	}
	if cs.bytes != 0 || len(cs.known) != 0 {
		t.Errorf("%d causes of %d bytes are left", len(cs.known), cs.bytes)
	}
}

// Small causes are counted, too. A shared cause stays until its last use is released.
func TestCausesAreCounted(t *testing.T) {
	var cs causes
	var taken []*cause
	for i := range maxCauses + 2 {
		taken = append(taken, cs.intern(newCause(xds.Cluster, fmt.Sprint(i), nil)))
	}
	if len(cs.known) != maxCauses+1 || taken[maxCauses] != taken[maxCauses+1] {
		t.Errorf("%d causes", len(cs.known))
	}
	again := cs.intern(newCause(xds.Cluster, "0", nil))
	cs.release(again)
	if again != taken[0] || cs.known[again.key] == nil {
		t.Error("a cause with one remaining use is forgotten")
	}
}

// A refusal lists the first nodes by name. It keeps only a few others in memory.
func TestNodesOfARefusal(t *testing.T) {
	g := &group{nodes: map[string]bool{}}
	for i := range 1000 {
		c := &client{clientID: clientID{node: fmt.Sprintf("%04d", 999-i)}}
		if g.add(&snapshot{client: c}, &refusal{cause: &cause{}}, nil); len(g.nodes) > 2*maxNodes {
			t.Fatalf("%d nodes", len(g.nodes))
		}
	}
	for i := range maxNodes {
		if !g.nodes[fmt.Sprintf("%04d", i)] {
			t.Errorf("%v", g.nodes)
		}
	}
}
