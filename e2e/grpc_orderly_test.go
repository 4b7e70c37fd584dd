package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/chancery-xds/chancery/e2e/tap"
)

// orderly moves the unsubscriptions of each step to its end, because clients unsubscribe before,
// with or after their next answer, by chance.
func orderly(rs tap.Records) tap.Records {
	type subscription struct {
		asked  []string    // by what is written
		letGo  *tap.Record // to be written
		stream int
		typ    string
	}
	var out tap.Records
	subscriptions := map[string]*subscription{}
	write := func(s *subscription) {
		if s.letGo != nil {
			out = append(out, *s.letGo)
			s.asked, s.letGo = s.letGo.Names, nil
		}
	}
	end := func() {
		for _, s := range slices.SortedFunc(maps.Values(subscriptions), func(x, y *subscription) int {
			return cmp.Or(cmp.Compare(x.stream, y.stream), cmp.Compare(x.typ, y.typ))
		}) {
			write(s)
		}
	}
	answered := map[string]bool{} // nonces
	for _, r := range rs {
		switch r.Kind {
		case tap.Mark:
			end()
			fallthrough
		default:
			out = append(out, r)
			continue
		case tap.Request:
		}
		key, nonce := fmt.Sprint(r.Stream, r.Type), fmt.Sprint(r.Stream, " ", r.Nonce)
		s := subscriptions[key]
		if s == nil {
			s = &subscription{stream: r.Stream, typ: r.Type}
			subscriptions[key] = s
		}
		r.Names = slices.Sorted(slices.Values(r.Names))
		answers := r.Nonce != "" && !answered[nonce]
		answered[nonce] = true
		if len(r.Names) < len(s.asked) && !slices.ContainsFunc(r.Names, func(n string) bool { return !slices.Contains(s.asked, n) }) {
			l := r
			l.Version, l.Nonce = "", ""
			s.letGo = &l
			if answers {
				r.Names = s.asked
				out = append(out, r)
			}
			continue
		}
		write(s)
		s.asked = r.Names
		out = append(out, r)
	}
	end()
	return out
}

func TestOrderly(t *testing.T) {
	mark := tap.Record{Kind: tap.Mark, Text: "next"}
	sent := func(nonce string) tap.Record {
		return tap.Record{Kind: tap.Response, Type: "RDS", Version: "v", Nonce: nonce}
	}
	says := func(nonce string, names ...string) tap.Record {
		return tap.Record{Kind: tap.Request, Type: "RDS", Version: "v", Nonce: nonce, Names: names}
	}
	begin := tap.Records{{Kind: tap.Open, Text: "/Service/Aggregated"}, mark, says("", "a"), sent("1"), says("1", "a"), mark}
	end := tap.Records{mark, says("2"), says("2", "b")}
	want := `Aggregated opened
-- next
Aggregated
C> RDS names=["a"] version_info="1"
   <S RDS version_info="1" nonce="1"
C> RDS names=["a"] version_info="1" response_nonce="1"
-- next
Aggregated
C> RDS names=["a", "b"] version_info="1" response_nonce="1"
   <S RDS version_info="1" nonce="2"
C> RDS names=["a", "b"] version_info="1" response_nonce="2"
C> RDS names=["b"]
-- next
Aggregated
C> RDS
C> RDS names=["b"] version_info="1" response_nonce="2"
`
	for when, said := range map[string]tap.Records{
		"before": {says("1", "a", "b"), says("1", "b"), sent("2"), says("2", "b")},
		"with":   {says("1", "a", "b"), sent("2"), says("2", "b")},
		"after":  {says("1", "b", "a"), sent("2"), says("2", "b", "a"), says("2", "b")},
	} {
		if got := orderly(slices.Concat(begin, said, end)).Transcript(); got != want {
			t.Errorf("lets go %s its answer:\n%s", when, difference(want, got))
		}
	}
}
