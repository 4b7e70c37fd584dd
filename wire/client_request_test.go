package wire

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/xds"
)

// clientRequest returns a request with every field that a client may set.
func clientRequest(t testing.TB, v xds.Variant, typ *xds.Type, rnd *rand.Rand) *xds.Request {
	some := func() bool { return rnd.IntN(2) == 0 }
	word := func() string {
		return []string{"", "a", "b", "*", "héllo", "xdstp://x/y?z=1", strings.Repeat("n", rnd.IntN(300))}[rnd.IntN(7)]
	}
	words := func() (s []string) {
		for range rnd.IntN(5) {
			s = append(s, word())
		}
		return s
	}
	r := &xds.Request{Type: typ, Nonce: word()}
	if some() {
		r.Node = &xds.Node{ID: word(), Cluster: word(), UserAgentName: word(), UserAgentVersion: word(), Region: word(), Zone: word(), SubZone: word(), ClientFeatures: words()}
		if some() {
			r.Node.Metadata = marshal(t, &structpb.Struct{Fields: map[string]*structpb.Value{"role": structpb.NewStringValue(word())}})
		}
	}
	if some() {
		r.Error = &xds.Status{Code: rnd.Int32N(20), Message: word()}
	}
	if v == xds.SotW {
		r.Version, r.Names = word(), words()
		return r
	}
	r.Subscribe, r.Unsubscribe = words(), words()
	for i := range rnd.IntN(4) {
		r.Initial = append(r.Initial, xds.Version{Name: fmt.Sprint(word(), i), Version: word()})
	}
	return r
}

// allTypes are the types to which a client may subscribe: those of the table, those of v2, an unlisted one, none.
func allTypes() []*xds.Type {
	types := xds.Types()
	for _, t := range xds.Types() {
		if t.Legacy() != nil {
			types = append(types, t.Legacy())
		}
	}
	return append(types, xds.TypeOf("type.googleapis.com/my.Own"))
}

func TestEncodeRequest(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		for _, typ := range append(allTypes(), nil) {
			t.Run(fmt.Sprintf("CLI-1 %s %s", v, typ), func(t *testing.T) {
				for range 100 {
					r := clientRequest(t, v, typ, rnd)
					b := EncodeRequest(v, r)
					got, err := (&Decoder{Variant: v}).Decode(b)
					if err != nil {
						t.Fatal(err)
					}
					if d := diff(*r, got); d != "" {
						t.Fatalf("(-sent +got)\n%s", d)
					}
					real, err := generated(v, b)
					if err != nil {
						t.Fatal(err)
					}
					if d := diff(*r, real); d != "" {
						t.Fatalf("(-sent +generated)\n%s", d)
					}
				}
			})
		}
	}
	t.Run("CLI-1 nothing of the other variant", func(t *testing.T) {
		all := &xds.Request{Version: "v", Names: []string{"a"}, Subscribe: []string{"b"}, Unsubscribe: []string{"c"}, Initial: []xds.Version{{Name: "d"}}}
		for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
			got, err := generated(v, EncodeRequest(v, all))
			if err != nil || v == xds.SotW && got.Subscribe != nil || v == xds.Delta && got.Names != nil {
				t.Errorf("%s: %+v, %v", v, got, err)
			}
		}
	})
	t.Run("CLI-2 a message that is no UTF-8, and codes below zero", func(t *testing.T) {
		for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
			got, err := generated(v, EncodeRequest(v, &xds.Request{Error: &xds.Status{Code: -1, Message: "a\xffb"}}))
			if err != nil || *got.Error != (xds.Status{Code: -1, Message: "a\uFFFDb"}) {
				t.Errorf("%s: %+v, %v", v, got.Error, err)
			}
		}
	})
}
