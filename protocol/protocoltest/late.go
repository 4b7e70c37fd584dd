package protocoltest

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// disturbAnswers disturbs the answers of a client in ways that the rules allow in both variants.
// Answers change places, come twice or come late, and an ACK may be lost if a later one follows. In
// SotW each request has all names, so the names keep their order: "the later holds". The first
// request with a nonce is the answer, so no other request with that nonce may overtake a NACK.
func (n *lane) disturbAnswers(requests []xds.Request) []xds.Request {
	if !n.sloppy {
		return requests
	}
	var out, twice []xds.Request
	for i := range requests {
		a := requests[i]
		t := n.typeOf(a)
		if t == nil {
			out = append(out, a)
			continue // the result is not a valid request
		}
		same := !n.changesNames(a)
		before := n.names[t.URL]
		n.names[t.URL] = a.Names
		if a.Nonce != "" && !n.calm {
			k := n.chance.IntN(16)
			if k == 0 {
				twice = append(twice, a)
			} else if n.disturb(k, same, &a, requests[i+1:]) {
				continue
			}
		}
		out = append(append(out, n.releaseNACKs(a, before)...), a)
	}
	out = append(out, n.repeatAnswers(twice)...)
	n.noteContradictions(out)
	return out
}

// noteContradictions pauses the check of "never breaks" if the client contradicts itself.
func (n *lane) noteContradictions(out []xds.Request) {
	for i := range out {
		n.unjudged = n.unjudged || n.contradicts(out, i)
	}
}

// changesNames reports whether a request changes the subscriptions.
func (n *lane) changesNames(a xds.Request) bool {
	if n.cfg.Variant == xds.SotW {
		return !sameNames(a.Names, n.names[n.typeOf(a).URL])
	}
	return len(a.Subscribe)+len(a.Unsubscribe) > 0
}

// disturb holds an answer back, loses it, or exchanges it with the next answer of the type. It reports whether the
// answer is not sent now. Set same if the request does not change the subscriptions.
func (n *lane) disturb(k int, same bool, a *xds.Request, rest []xds.Request) (unsent bool) {
	j := n.nextAnswer(n.typeOf(*a), rest)
	switch {
	case k == 1 && same:
		n.late = append(n.late, *a)
		return true
	case j < 0:
	case k < 6 && same && a.Error == nil:
		return true
	case k < 10 && a.Nonce != rest[j].Nonce:
		b := &rest[j]
		a.Nonce, b.Nonce = b.Nonce, a.Nonce
		a.Version, b.Version = b.Version, a.Version
		a.Error, b.Error = b.Error, a.Error
	}
	return false
}

// nextAnswer returns the index of the first answer of a type, or -1.
func (n *lane) nextAnswer(t *xds.Type, requests []xds.Request) int {
	return slices.IndexFunc(requests, func(r xds.Request) bool { return r.Nonce != "" && t.Is(n.typeOf(r)) })
}

// repeatAnswers returns answers that come twice, and sometimes those that were held back, with the present names.
func (n *lane) repeatAnswers(twice []xds.Request) []xds.Request {
	if n.calm || n.chance.IntN(3) == 0 {
		twice = append(twice, n.late...)
		n.late = nil
	}
	for i := range twice {
		r := &twice[i]
		r.Names, r.Subscribe, r.Unsubscribe, r.Initial = n.names[n.typeOf(*r).URL], nil, nil, nil
	}
	return twice
}

// releaseNACKs returns the NACKs that were held back with the nonce of a request, which must come before it.
func (n *lane) releaseNACKs(a xds.Request, names []string) (out []xds.Request) {
	n.late = slices.DeleteFunc(n.late, func(b xds.Request) bool {
		first := b.Error != nil && b.Nonce == a.Nonce && n.typeOf(a).Is(n.typeOf(b))
		if first {
			b.Names = names
			out = append(out, b)
		}
		return first
	})
	return out
}

// contradicts reports whether the client ACKs a response before it refuses an earlier one of the type. Until
// the NACK comes, the ACK covers both.
func (n *lane) contradicts(out []xds.Request, i int) bool {
	a := out[i]
	if a.Nonce == "" || a.Error != nil {
		return false
	}
	refuses := func(b xds.Request) bool {
		return b.Error != nil && n.typeOf(b) == n.typeOf(a) && cmp.Or(len(b.Nonce)-len(a.Nonce), strings.Compare(b.Nonce, a.Nonce)) < 0
	}
	return slices.ContainsFunc(slices.Concat(out[i+1:], n.late), func(b xds.Request) bool {
		first := !slices.ContainsFunc(out[:i], func(o xds.Request) bool { return o.Error != nil && o.Nonce == b.Nonce && n.typeOf(o) == n.typeOf(b) })
		return first && refuses(b)
	})
}

func (n *lane) typeOf(r xds.Request) *xds.Type {
	if r.Type == nil {
		return n.only
	}
	return r.Type
}

func sameNames(a, b []string) bool { return maps.Equal(setOf(a), setOf(b)) }

func setOf(names []string) map[string]bool {
	set := map[string]bool{}
	for _, n := range names {
		set[n] = true
	}
	return set
}
