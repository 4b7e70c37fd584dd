package tap

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Transcript returns the conversation in a form that is the same whenever both sides behave the same. A line
// "--" begins the part after a [Mark]. A part lists streams, by method and the names of their first request; a
// stream lists types, in the order of [types]; a type lists its requests in their order, and each response
// before the first request that answers it or a later one. How types, streams and messages in flight
// overlapped is left out, and so are the ends of streams, because they vary by chance.
//
// Nonces and versions are replaced by numbers in the order of their first use: by stream and type, and for
// resources by name. Names are sorted. A NACK has its code, not its text.
func (rs Records) Transcript() string {
	w := transcript{streams: map[int]*stream{}, versions: map[string]int{}}
	for _, r := range rs {
		w.meet(r)
	}
	var b strings.Builder
	for len(rs) > 0 {
		end := 1 + slices.IndexFunc(rs[1:], func(r Record) bool { return r.Kind == Mark })
		if end == 0 {
			end = len(rs)
		}
		w.step(&b, rs[:end])
		rs = rs[end:]
	}
	return b.String()
}

// types is the order of types in a transcript. Other types follow.
var types = []string{"CDS", "EDS", "LEDS", "SDS", "ECDS", "LDS", "SRDS", "RDS", "VHDS", "RTDS"}

type transcript struct {
	streams  map[int]*stream
	versions map[string]int // kind → number of values; kind and value → number of this value
}

type stream struct {
	method string   // "DeltaClusters"
	names  []string // of the first request, if there is one type
	asked  bool     // false for a stream without a request, which is left out
}

func (s *stream) String() string { return strings.Join(append([]string{s.method}, s.names...), " ") }

// meet records the names of a stream, and numbers versions and nonces.
func (w *transcript) meet(r Record) {
	switch r.Kind {
	case Open:
		w.streams[r.Stream] = &stream{method: r.Text[strings.LastIndexByte(r.Text, '/')+1:]}
	case Request:
		if s := w.streams[r.Stream]; !s.asked {
			s.asked = true
			if !strings.Contains(s.method, "Aggregated") {
				s.names = sorted(r.Names, r.Subscribe)
			}
		}
	case Response:
		// A new stream is sent versions of the stream before.
		w.count("version "+r.Type, r.Version)
		w.count(fmt.Sprint("nonce ", r.Stream, " ", r.Type), r.Nonce)
		for _, x := range r.Resources {
			w.count("resource "+r.Type+" "+x.Name, x.Version)
		}
	}
}

func (w *transcript) count(kind, value string) {
	key := kind + "\x00" + value
	if _, ok := w.versions[key]; !ok && value != "" {
		w.versions[kind]++
		w.versions[key] = w.versions[kind]
	}
}

// number returns the number of a version or nonce as text, or "?" if no response had it.
func (w *transcript) number(kind, value string) string {
	n, ok := w.versions[kind+"\x00"+value]
	switch {
	case value == "":
		return ""
	case !ok:
		return "?"
	}
	return fmt.Sprint(n)
}

// step writes the part up to the next mark.
func (w *transcript) step(b *strings.Builder, rs Records) {
	byStream := map[int]Records{}
	for _, r := range rs {
		if r.Kind == Mark {
			fmt.Fprintf(b, "-- %s\n", r.Text)
		} else {
			byStream[r.Stream] = append(byStream[r.Stream], r)
		}
	}
	order := slices.SortedFunc(maps.Keys(byStream), func(x, y int) int {
		return cmp.Or(cmp.Compare(w.streams[x].String(), w.streams[y].String()), cmp.Compare(x, y))
	})
	for _, id := range order {
		rs := byStream[id]
		if !w.streams[id].asked {
			continue
		}
		heading := w.streams[id].String()
		if rs[0].Kind == Open {
			heading += " opened"
		} else if rs[0].Kind == Close {
			continue
		}
		fmt.Fprintln(b, heading)
		slices.SortStableFunc(rs, func(x, y Record) int { return cmp.Compare(place(x), place(y)) })
		for len(rs) > 0 {
			end := 1 + slices.IndexFunc(rs[1:], func(r Record) bool { return r.Type != rs[0].Type })
			if end == 0 {
				end = len(rs)
			}
			for _, r := range paired(rs[:end]) {
				fmt.Fprintln(b, w.line(r))
			}
			rs = rs[end:]
		}
	}
}

// paired puts the responses of one type on one stream before their answers.
func paired(rs Records) (out Records) {
	responses := rs.Responses()
	for _, r := range rs.Requests() {
		n := 1 + slices.IndexFunc(responses, func(x Record) bool { return x.Nonce == r.Nonce })
		out = append(append(out, responses[:n]...), r)
		responses = responses[n:]
	}
	return append(out, responses...)
}

func place(r Record) int {
	if i := slices.Index(types, r.Type); i >= 0 {
		return i
	}
	return len(types)
}

// line writes a message without the values that vary by chance.
func (w *transcript) line(r Record) string {
	if r.Kind == Request {
		r.Names, r.Subscribe, r.Unsubscribe = sorted(r.Names), sorted(r.Subscribe), sorted(r.Unsubscribe)
		var initial []string
		for _, x := range r.Initial {
			name, version, _ := cutLast(x, "@")
			initial = append(initial, name+"@"+w.number("resource "+r.Type+" "+name, version))
		}
		r.Initial, r.NACK = initial, ""
	}
	r.Version = w.number("version "+r.Type, r.Version)
	r.Nonce = w.number(fmt.Sprint("nonce ", r.Stream, " ", r.Type), r.Nonce)
	r.Removed = sorted(r.Removed)
	r.Resources = slices.Clone(r.Resources)
	for i, x := range r.Resources {
		r.Resources[i].Version = w.number("resource "+r.Type+" "+x.Name, x.Version)
	}
	slices.SortFunc(r.Resources, func(x, y Resource) int { return cmp.Compare(x.Name, y.Name) })
	_, said, _ := strings.Cut(r.String(), fmt.Sprintf("#%d ", r.Stream))
	return said
}

func sorted(names ...[]string) []string { return slices.Sorted(slices.Values(slices.Concat(names...))) }

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
