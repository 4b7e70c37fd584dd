package wire

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/xds"
)

// Random responses decode to the same result with and without a memory. A resource in two consecutive responses
// is made once.
func TestMemory(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint("CLI-6 seed ", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			var m Memory
			var entries [][]byte
			var last []*xds.Resource
			for range 30 {
				entries = edited(rnd, entries)
				msg := appendString(nil, fieldTypeURL, xds.Cluster.URL)
				for _, e := range entries {
					msg = protowire.AppendBytes(protowire.AppendTag(msg, fieldResources, protowire.BytesType), e)
				}
				got, err := DecodeResponse(xds.SotW, msg, ResponseOptions{Memory: &m})
				want, werr := DecodeResponse(xds.SotW, msg, ResponseOptions{})
				if err != nil || werr != nil {
					t.Fatal(err, werr)
				}
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("got  %+v\nwant %+v", got.Changes, want.Changes)
				}
				for _, r := range got.Upserts {
					name := func(o *xds.Resource) bool { return o.Name == r.Name }
					before, twice := slices.IndexFunc(last, name), count(got.Upserts, name) > 1 || count(last, name) > 1
					if before >= 0 && !twice && reflect.DeepEqual(last[before], r) != (last[before] == r) {
						t.Fatalf("%s was made again", r.Name)
					}
				}
				if len(got.Upserts) > 0 || len(got.Beats) == 0 {
					last = got.Upserts
				}
			}
		})
	}
}

func count(rs []*xds.Resource, is func(*xds.Resource) bool) (n int) {
	for _, r := range rs {
		if is(r) {
			n++
		}
	}
	return n
}

// edited returns entries of the field resources, some of them changed.
func edited(rnd *rand.Rand, was [][]byte) [][]byte {
	at := func() int { return rnd.IntN(len(was) + 1) }
	is := slices.Clone(was)
	switch what := rnd.IntN(8); {
	case what == 0 || len(is) == 0:
		is = nil
		for range rnd.IntN(12) {
			is = append(is, randomEntry(rnd))
		}
	case what == 1: // in the middle
		is = slices.Insert(is, at(), randomEntry(rnd))
	case what == 2:
		i := rnd.IntN(len(is))
		is = slices.Delete(is, i, min(i+rnd.IntN(6), len(is)))
	case what == 3: // twice
		is = slices.Insert(is, at(), is[rnd.IntN(len(is))])
	case what == 4:
		rnd.Shuffle(len(is), func(i, j int) { is[i], is[j] = is[j], is[i] })
	case what == 5:
		is[rnd.IntN(len(is))] = randomEntry(rnd)
	case what == 6: // heartbeats
		is = nil
		for range 1 + rnd.IntN(3) {
			is = append(is, sotwEntry(resourceURL, append(appendString(nil, resourceName, fmt.Sprint(rnd.IntN(12))), appendString(nil, resourceVersion, "1")...)))
		}
	}
	return is
}

// randomEntry has one of a few names, encoded in one of many ways.
func randomEntry(rnd *rand.Rand) []byte {
	name := fmt.Sprint(rnd.IntN(12))
	body := named(rand.New(rand.NewPCG(rnd.Uint64N(2), 2)), name, rnd.IntN(3))
	bare := sotwEntry(xds.Cluster.URL, body)
	switch rnd.IntN(12) {
	case 0: // the same, in another order
		return protowire.AppendString(protowire.AppendTag(protowire.AppendBytes(protowire.AppendTag(nil, anyValue, protowire.BytesType), body), anyTypeURL, protowire.BytesType), xds.Cluster.URL)
	case 1: // and with a field more
		return protowire.AppendVarint(protowire.AppendTag(bare, 9, protowire.VarintType), 1)
	case 2: // or less
		return bare[:len(bare)-rnd.IntN(4)]
	case 3:
		return sotwEntry(xds.Listener.URL, body)
	case 4: // of another name, which is not in the message
		return wrappedEntry(fmt.Sprint(rnd.IntN(12)), "", 0, bare)
	case 5:
		return wrappedEntry(name, "1", 0, bare, "alias")
	case 6:
		return wrappedEntry(name, "", time.Duration(1+rnd.IntN(2))*time.Second, bare)
	case 7: // no name, and no message
		return sotwEntry(xds.Cluster.URL, [][]byte{nil, {1}}[rnd.IntN(2)])
	}
	return bare
}

func sotwEntry(url string, body []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(appendString(nil, anyTypeURL, url), anyValue, protowire.BytesType), body)
}

func wrappedEntry(name, version string, ttl time.Duration, bare []byte, aliases ...string) []byte {
	b := appendString(nil, resourceName, name)
	if version != "" {
		b = append(b, appendString(nil, resourceVersion, version)...)
	}
	for _, a := range aliases {
		b = append(b, appendString(nil, resourceAliases, a)...)
	}
	if ttl > 0 {
		d := protowire.AppendVarint(protowire.AppendTag(nil, durationSeconds, protowire.VarintType), uint64(ttl/time.Second))
		b = protowire.AppendBytes(protowire.AppendTag(b, resourceTTL, protowire.BytesType), d)
	}
	return sotwEntry(resourceURL, protowire.AppendBytes(protowire.AppendTag(b, resourceAny, protowire.BytesType), bare))
}

// A server that invents types cannot fill the memory, and removed resources are dropped from it.
func TestMemoryIsBounded(t *testing.T) {
	t.Run("CLI-6", func(t *testing.T) {
		var m Memory
		say := func(url string, names ...string) {
			msg := appendString(nil, fieldTypeURL, url)
			for _, name := range names {
				msg = protowire.AppendBytes(protowire.AppendTag(msg, fieldResources, protowire.BytesType), wrappedEntry(name, "1", 0, sotwEntry(url, nil)))
			}
			if _, err := DecodeResponse(xds.SotW, msg, ResponseOptions{Memory: &m}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 2 * maxRemembered {
			say(fmt.Sprint("made.up/", i), "a")
		}
		if len(m.types) != maxRemembered {
			t.Errorf("%d types", len(m.types))
		}
		say("made.up/0", "a", "b", "c")
		if say("made.up/0"); len(m.types["made.up/0"]) != 0 {
			t.Error("what is gone is remembered")
		}
	})
}

func BenchmarkDecodeResponse(b *testing.B) {
	rnd := rand.New(rand.NewPCG(9, 9))
	var all []*xds.Resource
	for i := range 10_000 {
		name := fmt.Sprint("r", i)
		all = append(all, xds.NewResource(xds.Cluster, name, named(rnd, name, 300)))
	}
	extra := xds.NewResource(xds.Cluster, "extra", named(rnd, "extra", 300))
	other := slices.Clone(all)
	rnd.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
	changed := slices.Clone(all)
	changed[7] = xds.NewResource(xds.Cluster, "r7", named(rnd, "r7", 300))
	for _, bb := range []struct {
		name string
		next []*xds.Resource
	}{{"new", nil}, {"same", all}, {"one changes", changed}, {"one comes or goes", slices.Insert(slices.Clone(all), 5000, extra)}, {"any order", other}} {
		b.Run(bb.name, func(b *testing.B) {
			var msgs [2][]byte
			for i, rs := range [][]*xds.Resource{all, bb.next} {
				msgs[i] = Encode(xds.SotW, &xds.Response{Type: xds.Cluster, Version: "1", Nonce: "1", Changes: &xds.Changes{Upserts: rs}}, "").Materialize()
			}
			o := ResponseOptions{Memory: &Memory{}}
			if bb.next == nil {
				o.Memory, msgs[1] = nil, msgs[0]
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(msgs[0])))
			for i := 0; b.Loop(); i++ {
				if _, err := DecodeResponse(xds.SotW, msgs[i%2], o); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// "If the same non-repeated field appears more than once, the last one counts", even if the first one equals the
// remembered resource.
func TestMemoryOfAnAnyWithTwoValues(t *testing.T) {
	var m Memory
	was, is := []byte("\x0a\x01a"), []byte("\x0a\x01b")
	entry := sotwEntry(xds.Cluster.URL, was)
	for _, tt := range []struct {
		entry []byte
		want  string
	}{
		{entry, "a"},
		{protowire.AppendBytes(protowire.AppendTag(slices.Clone(entry), anyValue, protowire.BytesType), is), "b"},
	} {
		msg := appendString(nil, fieldTypeURL, xds.Cluster.URL)
		msg = protowire.AppendBytes(protowire.AppendTag(msg, fieldResources, protowire.BytesType), tt.entry)
		r, err := DecodeResponse(xds.SotW, msg, ResponseOptions{Memory: &m})
		if err != nil || len(r.Upserts) != 1 || r.Upserts[0].Name != tt.want {
			t.Errorf("%+v, %v, want %q", r, err, tt.want)
		}
	}
}
