package xds

import "testing"

// Nil references mean "not known", so the resource may refer to anything. An empty list means none.
func TestMayRefer(t *testing.T) {
	for name, c := range map[string]struct {
		refs []Ref
		want bool
	}{
		"not known":                 {nil, true},
		"to nothing":                {[]Ref{}, false},
		"to it":                     {[]Ref{{Route, "x"}, {Cluster, "a"}}, true},
		"to an alias of it":         {[]Ref{{Cluster, "alias"}}, true},
		"to any of the type":        {[]Ref{{Cluster, Wildcard}}, true},
		"to another":                {[]Ref{{Cluster, "b"}}, false},
		"to one of another type":    {[]Ref{{Endpoint, "a"}}, false},
		"to any of another type":    {[]Ref{{Endpoint, Wildcard}}, false},
		"to the alias of a sibling": {[]Ref{{Cluster, "alias-2"}}, false},
	} {
		t.Run("ADS-6 "+name, func(t *testing.T) {
			s := &Stamp{Name: "r", Refs: c.refs}
			if got := s.MayRefer(Cluster, "a", "other", "alias"); got != c.want {
				t.Errorf("it may refer: %v", got)
			}
		})
	}
}
