package server

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// endedWith remembers the contents of ended streams with one version, and returns their key.
func (t *sentHistory) endedWith(now time.Time, owner, version string, contents ...content) stateKey {
	key := stateKeyOf("n", xds.Route.URL, version)
	for _, c := range contents {
		h := &statedContent{content: c, of: key}
		t.hold(h, nil)
		t.end(now, owner, []*statedContent{h})
	}
	return key
}

// ADS-9: a client that may have a part of a later response may have it after another reconnect, too, even if another
// stream of its node had the same resources for certain.
func TestRecallKeepsSince(t *testing.T) {
	now, m := time.Now(), newSentHistory(10)
	each := stampList{{{Name: "a"}}}
	for _, contents := range [][]content{
		{{each: each, since: true}}, {{each: each}, {each: each, since: true}}, {{each: each, since: true}, {each: each}},
	} {
		key := m.endedWith(now, "", fmt.Sprint(contents), contents...)
		if c, ok := m.recall(now, key); !ok || !c.since || c.each.len() != 1 {
			t.Errorf("of %v: %v", contents, c)
		}
	}
}

// ADS-9: a client that has no resource is known, and is not the same as an unknown client.
func TestRecallOfNothing(t *testing.T) {
	now, m := time.Now(), newSentHistory(10)
	key := m.endedWith(now, "", "v", content{})
	if c, ok := m.recall(now, key); !ok || c.all != nil || len(c.each) != 0 {
		t.Errorf("known: %v, %v", ok, c)
	}
	if _, ok := m.recall(now, stateKeyOf("n", xds.Route.URL, "other")); ok {
		t.Error("an unknown version is known")
	}
}

// SAFE-9: names that a client lacks count when the contents of many streams are combined. Equal contents count once.
func TestRecallLimitOfLacks(t *testing.T) {
	now := time.Now()
	all := with(new(xds.Table), []*xds.Resource{res("a", "1")}).Versions()
	var lacks []string
	for i := range maxRecalled {
		lacks = append(lacks, fmt.Sprintf("%06d", i))
	}
	for what, tt := range map[string]struct {
		contents []content
		anything bool
	}{
		"equal":                   {[]content{{all: all, lacks: lacks}, {all: all, lacks: lacks}, {all: all, lacks: lacks}}, false},
		"as many as possible":     {[]content{{all: all}, {all: all, lacks: lacks[1:]}}, false},
		"one more":                {[]content{{all: all}, {all: all, lacks: lacks}}, true},
		"the first has no limit":  {[]content{{all: all, lacks: append(slices.Clone(lacks), lacks...)}}, false},
		"names in two, exhausted": {[]content{{all: all}, {all: all, lacks: lacks[:len(lacks)/2]}, {all: all, lacks: lacks[len(lacks)/2:]}}, true},
	} {
		m := newSentHistory(10)
		key := stateKeyOf("n", xds.Route.URL, "v")
		for i := range tt.contents { // the newest is not at the front: the first of the list stays
			m.hold(&statedContent{content: tt.contents[i], of: key}, nil)
		}
		if c, ok := m.recall(now, key); !ok || c.isAnything() != tt.anything {
			t.Errorf("%s: may have anything: %v", what, c.isAnything())
		}
	}
}

// The time of a content begins again when an equal one is added. Content of others is forgotten meanwhile.
func TestHistoryForgetsByTime(t *testing.T) {
	begin, m := time.Now(), newSentHistory(100)
	one := func(name string) content { return content{each: stampList{{{Name: name}}}} }
	m.endedWith(begin, "x", "a", one("a"))
	m.endedWith(begin.Add(time.Minute), "x", "b", one("b"))
	m.endedWith(begin.Add(2*time.Minute), "x", "a", one("a"))
	for i := range 3 {
		m.endedWith(begin.Add(30*time.Minute), "y", fmt.Sprint("y", i), one("y"))
	}
	m.end(begin.Add(historyTime+90*time.Second), "", nil)
	if n := m.ended.Len(); n != 4 {
		t.Errorf("%d are remembered, want a and three of y", n)
	}
	for _, v := range []string{"a", "y0", "y1", "y2"} {
		if m.index[stateKeyOf("n", xds.Route.URL, v)] == nil {
			t.Errorf("%s is forgotten", v)
		}
	}
}

// SAFE-1: the memory of the history may reach its limit exactly.
func TestHistoryBytesLimit(t *testing.T) {
	limit := historyLimit(10)
	room := (limit - contentBytes) / nameBytes * nameBytes
	stamps := (limit - contentBytes - room) / stampBytes
	for more, want := range map[int]int{0: 1, 1: 0} {
		m := newSentHistory(10)
		each := stampList{}
		for i := range stamps + more {
			each = append(each, []*xds.Stamp{{Name: fmt.Sprint(i)}})
		}
		m.endedWith(time.Now(), "", "v", content{each: each, lacks: make([]string, room/nameBytes)})
		if n := m.ended.Len(); n != want {
			t.Errorf("with %d stamps more, %d are remembered, want %d", more, n, want)
		}
	}
}

// SAFE-14: the memory of the history follows the limit of streams, so that of the program.
func TestHistoryFollowsStreams(t *testing.T) {
	for n, want := range map[int]int{10: 4<<20 + 10<<10, 20_000: 40_000 << 10, 400_000: 64<<20 + 400_000<<10} {
		if got := historyLimit(n); got != want {
			t.Errorf("SAFE-14 %d responses may take %d bytes, want %d", n, got, want)
		}
	}
}

// ADS-9: the version of a table proves that the client has the table, and no other resource.
func TestContentOfVersion(t *testing.T) {
	all := with(new(xds.Table), []*xds.Resource{res("a", "1"), res("b", "1")})
	more := []*xds.Resource{res("c", "1"), res("d", "1")}
	others := []*xds.Stamp{more[0].Stamp, more[1].Stamp}
	w := &protocol.World{Versions: all.Versions(), Others: others}
	if c, ok := contentOfVersion(w, all.Version()); !ok || c.all != w.Versions || len(c.each) != 0 {
		t.Errorf("the version of the table: %v %v", ok, c)
	}
	both := with(all, more).Version()
	if c, ok := contentOfVersion(w, both); !ok || c.all != w.Versions || !slices.Equal(c.each.flat(), others) {
		t.Errorf("the version of all resources: %v %v", ok, c)
	}
	if _, ok := contentOfVersion(w, "another"); ok {
		t.Error("any version is proved")
	}
}
