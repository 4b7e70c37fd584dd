package inbound

import (
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/net/http2"
)

// A scanner that skips payloads finds the same frames as one that reads them, for any division of
// the bytes.
func TestReplies(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		talk := newTalk()
		var grants, granted []int
		for id := range uint32(30) {
			switch r.IntN(6) {
			case 5:
				_ = talk.WriteWindowUpdate(id, 1+id)
				grants = append(grants, int(1+id))
			case 0:
				talk.open(id, r.IntN(2) == 0)
			case 1:
				_ = talk.WriteRSTStream(id, http2.ErrCodeCancel)
			case 2:
				_ = talk.WriteDataPadded(id, false, make([]byte, r.IntN(300)), make([]byte, r.IntN(256)))
			default:
				talk.data(id, r.IntN(2) == 0, make([]byte, r.IntN(3000)))
			}
		}
		var want []frame
		var looks scanner
		for b := talk.Bytes()[preface:]; len(b) > 0; {
			f, _, rest, begins, _, _ := looks.next(b)
			if b = rest; begins {
				want = append(want, f)
			}
		}
		var got []frame
		var passes replies
		for all := talk.Bytes()[preface:]; len(all) > 0; {
			n := min(len(all), 1+r.IntN(1+r.IntN(5000)))
			for b := all[:n]; len(b) > 0; {
				f, begins, grant, rest := passes.next(b)
				if b = rest; begins {
					got = append(got, f)
				}
				if grant > 0 {
					granted = append(granted, grant)
				}
			}
			all = all[n:]
		}
		if !slices.Equal(got, want) || len(want) != 30 {
			t.Fatalf("seed %d: %v, want %v", seed, got, want)
		}
		if !slices.Equal(granted, grants) {
			t.Fatalf("seed %d: %v were granted, want %v", seed, granted, grants)
		}
	}
}
