package history

import (
	"slices"
	"testing"
)

// heads are four revisions of two resources, one of which comes back as it was.
var heads = []Commit{
	{Set: map[string]string{"a": "a1", "b": "b1"}},
	{Set: map[string]string{"a": "a2"}},
	{Set: map[string]string{"b": "b3"}, Removed: []string{"a"}},
	{Set: map[string]string{"a": "a1"}},
}

// seen are resource, content, resource, content, …
func seen(all ...string) (s []Seen) {
	for pair := range slices.Chunk(all, 2) {
		s = append(s, Seen{pair[0], pair[1], "x"})
	}
	return s
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name   string
		client Client
		told   map[int]Commit
		want   []Kind
	}{
		{name: "nothing"},
		{name: "all", client: Client{Delta: true, Rests: true, Seen: seen("a", "a1", "b", "b1", "a", "a2", "b", "b3", "a", "", "a", "a1")}},
		{name: "the first and the last alone", client: Client{Delta: true, Rests: true, Seen: seen("a", "a1", "b", "b1", "b", "b3")}},
		{name: "the last alone", client: Client{Rests: true, Seen: seen("b", "b3", "a", "a1")}},
		{name: "SotW tells again", client: Client{Rests: true, Seen: seen("b", "b3", "a", "a1", "b", "b3", "a", "a1")}},
		{name: "a removal of what it never had", client: Client{Delta: true, Seen: seen("a", "", "b", "b1")}},
		{name: "delta tells again", client: Client{Delta: true, Seen: seen("b", "b1", "b", "b1")}, want: []Kind{Resent}},
		{name: "an older one", client: Client{Seen: seen("b", "b3", "b", "b1")}, want: []Kind{Older}},
		{name: "older than what it knows of another", client: Client{Delta: true, Seen: seen("b", "b3", "a", "a2")}, want: []Kind{Older}},
		{name: "the same in the order of the heads", client: Client{Seen: seen("a", "a2", "b", "b3")}},
		{name: "removed, after it came back", client: Client{Seen: seen("a", "a2", "b", "b3", "a", "a1", "a", "")}, want: []Kind{Older}},
		{name: "back twice", client: Client{Seen: seen("a", "a1", "a", "a2", "a", "a1", "a", "a2")}, want: []Kind{Older}},
		{name: "SotW goes on with what was removed", client: Client{Seen: seen("b", "b3", "a", "a2", "a", "")}, want: []Kind{Lingers}},
		{name: "delta does not", client: Client{Delta: true, Seen: seen("b", "b3", "a", "a2")}, want: []Kind{Older}},
		{name: "SotW does not with what was replaced before that", client: Client{Seen: seen("a", "a2", "b", "b3", "a", "", "a", "a1", "a", "a2")}, want: []Kind{Older}},
		{name: "nobody's", client: Client{Seen: seen("b", "b2")}, want: []Kind{Unknown}},
		{name: "of another name", client: Client{Seen: seen("b", "a1")}, want: []Kind{Unknown}},
		{name: "behind", client: Client{Rests: true, Seen: seen("a", "a1", "b", "b1")}, want: []Kind{Behind}},
		{name: "lacks one", client: Client{Rests: true, Seen: seen("b", "b3")}, want: []Kind{Behind}},
		{name: "removed, and rests", client: Client{Rests: true, Seen: seen("b", "b3", "a", "")}, want: []Kind{Behind}},
		{name: "behind, and disturbed", client: Client{Seen: seen("a", "a1", "b", "b1")}},
		{name: "a commit", told: map[int]Commit{2: {Set: map[string]string{"a": "a2"}}, 3: heads[2]}},
		{name: "another one", told: map[int]Commit{2: {Set: map[string]string{"a": "a3"}}}, want: []Kind{Lost}},
		{name: "more", told: map[int]Commit{2: {Set: map[string]string{"a": "a2"}, Removed: []string{"b"}}}, want: []Kind{Lost}},
		{name: "one that is not there", told: map[int]Commit{5: {Set: map[string]string{"a": "a2"}}}, want: []Kind{Lost}},
		{name: "before the first", told: map[int]Commit{0: {}}, want: []Kind{Lost}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []Kind
			for _, v := range Check(Record{heads, c.told, []Client{c.client}}) {
				got = append(got, v.Kind)
				t.Log(v)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// The record of one client does not count for another.
func TestClientsApart(t *testing.T) {
	r := Record{Heads: heads, Clients: []Client{{Name: "1", Seen: seen("b", "b3")}, {Name: "2", Seen: seen("b", "b1")}}}
	if wrong := Check(r); wrong != nil {
		t.Error(wrong)
	}
}
