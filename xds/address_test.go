package xds

import (
	"slices"
	"strings"
	"testing"
)

// listenersAt makes resources from "name=host:port,host:port".
func listenersAt(all string) (rs []*Resource) {
	for s := range strings.FieldsSeq(all) {
		name, list, _ := strings.Cut(s, "=")
		var addresses []Address
		for a := range strings.SplitSeq(list, ",") {
			host, port, _ := strings.Cut(a, ":")
			addresses = append(addresses, Address{port, host})
		}
		r := NewResource(Listener, name, []byte(list))
		r.Addresses = &addresses
		rs = append(rs, r)
	}
	return rs
}

func TestHandOver(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, was, next string
		want            string // with "!" if the order is not that of the names, or the changes must not be split
	}{
		{"HEAL-4 nothing moves", "a=h:1 b=h:2", "a=h:1 b=h:2", "a b"},
		{"HEAL-4 the name of the taker is first", "b=h:1", "a=h:1 b=h:2", "!b a"},
		{"HEAL-4 the name of the taker is last", "a=h:1", "a=h:2 b=h:1", "a b"},
		{"HEAL-4 the address of a removed one", "b=h:1", "a=h:1", "!a"},
		{"HEAL-4 every host", "b=:1", "a=h:1 b=h:2", "!b a"},
		{"HEAL-4 one of every host", "b=h:1", "a=:1 b=h:2", "!b a"},
		{"HEAL-4 another host", "b=g:1", "a=h:1 b=h:2", "a b"},
		{"HEAL-4 one of two addresses stays", "b=h:1,h:2", "a=h:2 b=h:1", "!b a"},
		{"HEAL-4 an address that stays is not released", "b=h:1,h:2", "a=h:1 b=h:1", "a b"},
		{"HEAL-4 from every host to one", "b=:1", "a=g:1 b=h:1", "!b a"},
		{"HEAL-4 a chain", "b=h:1 c=h:2 d=h:3", "a=h:1 b=h:2 c=h:3 d=h:4", "!d c b a"},
		{"HEAL-4 an exchange", "a=h:1 b=h:2", "a=h:2 b=h:1", "!b a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			show := func(c *Changes) string {
				var names []string
				for _, r := range c.Upserts {
					names = append(names, r.Name)
				}
				return mark(c) + strings.Join(names, " ")
			}
			var was []*Stamp
			for _, r := range listenersAt(tc.was) {
				was = append(was, r.Stamp)
			}
			c := (&Changes{Upserts: listenersAt(tc.next)}).HandOver(slices.Values(was))
			if got := show(c); got != tc.want {
				t.Errorf("%s, not %s", got, tc.want)
			}
			if c.Together && len(c.Split(1)) != 1 {
				t.Error("the changes are split")
			}
			old, err := NewTable(Listener).With(listenersAt(tc.was))
			if err != nil {
				t.Fatal(err)
			}
			var gone []string
			for _, r := range listenersAt(tc.was) {
				gone = append(gone, r.Name)
			}
			now, err := old.With(listenersAt(tc.next), gone...)
			if err != nil {
				t.Fatal(err)
			}
			if whole := now.Whole(old.Versions()); strings.TrimPrefix(show(whole), "!") != strings.TrimPrefix(tc.want, "!") {
				t.Errorf("the whole table: %s, not %s", show(whole), tc.want)
			}
			if now.Whole(nil) != now.Since(nil) {
				t.Error("a client that holds nothing gets other changes than from Since")
			}
		})
	}
}

func mark(c *Changes) string {
	if c.Together {
		return "!"
	}
	return ""
}
