package client_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/protocol/internal/client"
	"github.com/chancery-xds/chancery/xds"
)

// A client that uses the places of the last response behaves like a client that looks up each name.
// That holds for added, removed, duplicate, reordered and refused resources, for heartbeats and for
// expired TTLs.
func TestClientRows(t *testing.T) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		for _, typ := range []*xds.Type{xds.Cluster, xds.Endpoint} {
			for seed := range uint64(150) {
				t.Run(fmt.Sprintf("CLI-3 CLI-5 CLI-8 CLI-12 %s %s seed %d", v, typ, seed), func(t *testing.T) {
					rnd := rand.New(rand.NewPCG(seed, 3))
					opts := client.Options{Retain: seed%3 == 1, DropOnError: seed%5 == 1, Check: func(r *xds.Resource) error {
						if strings.HasPrefix(string(r.Body), "bad") {
							return errors.New(string(r.Body))
						}
						return nil
					}}
					w := &rowsWorld{rnd: rnd, typ: typ, clients: [2]*client.Client{client.New(v, opts), client.New(v, opts)}}
					for range 60 {
						w.step(t)
					}
				})
			}
		}
	}
}

// A rowsWorld gives the same inputs to two clients. The second client does not use places.
type rowsWorld struct {
	rnd     *rand.Rand
	typ     *xds.Type
	clients [2]*client.Client
	now     time.Time
	nonce   int
	last    []*xds.Resource // resources of the newest response
	story   []string
}

func (w *rowsWorld) step(t *testing.T) {
	var do func(c *client.Client) error
	name := []string{xds.Wildcard, w.name(), w.name()}[w.rnd.IntN(3)]
	switch w.rnd.IntN(12) {
	case 0:
		w.note("subscribe", name)
		do = func(c *client.Client) error { c.Subscribe(w.typ, name); return nil }
	case 1:
		w.note("unsubscribe", name)
		do = func(c *client.Client) error { c.Unsubscribe(w.typ, name); return nil }
	case 2:
		w.note("connect")
		do = func(c *client.Client) error { c.Connected(nil); return nil }
	case 3:
		w.now = w.now.Add(time.Duration(w.rnd.IntN(20)) * time.Second)
		w.note("time", w.now)
		do = func(c *client.Client) error { c.Advance(w.now); return nil }
	case 4:
		r, own := w.resource(), w.rnd.IntN(2) == 0
		w.note("adopt", r.Name, own)
		do = func(c *client.Client) error { c.Adopt(w.typ, own, r); return nil }
	default:
		resp := w.response()
		do = func(c *client.Client) error { return c.Receive(resp) }
	}
	w.clients[1].Forget()
	var outputs [2]string
	for i, c := range w.clients {
		outputs[i] = fmt.Sprintln("error:", do(c))
		for e := range c.Events() {
			outputs[i] += fmt.Sprintln(e.Kind, e.Name, e.Asked, e.Err, w.text(e.Resource))
		}
		for r := range c.Requests() {
			outputs[i] += fmt.Sprintln("request", r.Version, r.Nonce, r.Names, r.Subscribe, r.Unsubscribe, r.Initial, r.Error)
		}
		var states []string
		for s := range c.States(w.typ) {
			states = append(states, fmt.Sprintln(s.Name, s.Status, w.text(s.Resource), s.Version, s.Updated, s.Err, s.Refused, s.Failed))
		}
		slices.Sort(states)
		outputs[i] += fmt.Sprintln(states, c.Deadline())
		if err := c.Check(); err != nil {
			t.Fatalf("%s\n%v", strings.Join(w.story, "\n"), err)
		}
	}
	if outputs[0] != outputs[1] {
		t.Fatalf("%s\nby places:\n%s\nby names:\n%s", strings.Join(w.story, "\n"), outputs[0], outputs[1])
	}
}

func (w *rowsWorld) note(what ...any) { w.story = append(w.story, fmt.Sprint(what...)) }

// text identifies the resource itself, not only its content.
func (w *rowsWorld) text(r *xds.Resource) string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("%p %s", r, r.Body)
}

func (w *rowsWorld) name() string { return string(rune('a' + w.rnd.IntN(8))) }

func (w *rowsWorld) resource() *xds.Resource {
	r := &xds.Resource{Stamp: &xds.Stamp{Name: w.name()}, Type: w.typ, Body: []byte{byte('0' + w.rnd.IntN(3))}}
	switch w.rnd.IntN(8) {
	case 0:
		r.Body = []byte("bad")
	case 1:
		r.TTL = time.Duration(1+w.rnd.IntN(15)) * time.Second
	case 2:
		r.Aliases = []string{w.name(), w.name()}
	case 3:
		r.Name = "xdstp://x/t/y?b=1&a=" + fmt.Sprint(w.rnd.IntN(2))
	}
	r.Seal("")
	return r
}

// response returns a variation of the last response.
func (w *rowsWorld) response() *xds.Response {
	at := func() int { return w.rnd.IntN(len(w.last) + 1) }
	is := slices.Clone(w.last)
	what := w.rnd.IntN(9)
	switch {
	case what == 0 || len(is) == 0:
		is = nil
		for range w.rnd.IntN(9) {
			is = append(is, w.resource())
		}
	case what == 1:
		is = slices.Insert(is, at(), w.resource())
	case what == 2:
		i := w.rnd.IntN(len(is))
		is = slices.Delete(is, i, min(i+w.rnd.IntN(4), len(is)))
	case what == 3: // a resource twice
		is = slices.Insert(is, at(), is[w.rnd.IntN(len(is))])
	case what == 4:
		w.rnd.Shuffle(len(is), func(i, j int) { is[i], is[j] = is[j], is[i] })
	case what == 5:
		is[w.rnd.IntN(len(is))] = w.resource()
	case what == 6: // the same resources, in separate memory
		for i, r := range is {
			is[i] = &xds.Resource{Stamp: &xds.Stamp{Name: r.Name, Version: r.Version, Sum: r.Sum}, Type: r.Type, Body: slices.Clone(r.Body), Aliases: r.Aliases, TTL: r.TTL}
		}
	}
	w.nonce++
	resp := &xds.Response{Type: w.typ, Nonce: fmt.Sprint(w.nonce), Version: fmt.Sprint(w.rnd.IntN(5)), Changes: &xds.Changes{Upserts: is}}
	w.last = is
	if w.rnd.IntN(6) == 0 { // other parts of a response, in addition to resources
		switch r := w.resource(); w.rnd.IntN(7) {
		case 0:
			resp.Upserts, r.Body = nil, nil
			resp.Beats = []*xds.Resource{r}
		case 1:
			r.Body = nil
			resp.Beats = []*xds.Resource{r}
		case 2:
			resp.Removed = []string{r.Name}
		case 3:
			resp.Absent = []string{r.Name}
		case 4:
			resp.Missing = []string{r.Name}
		case 5:
			resp.Errors = []xds.ResourceError{{Name: r.Name, Status: xds.Status{Code: 7 + int32(w.rnd.IntN(2)), Message: "no"}}}
		case 6:
			resp.Malformed = []error{&xds.MalformedError{Name: r.Name, Err: errors.New("truncated")}}
		}
	}
	var names []string
	for _, r := range resp.Upserts {
		names = append(names, r.Name+"="+string(r.Body))
	}
	w.note("receive ", names, resp.Beats, resp.Removed, resp.Absent, resp.Missing, resp.Errors, resp.Malformed)
	return resp
}
