package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fake is a server with scripted answers, over one stream for all types.
type fake struct {
	variant xds.Variant
	answer  func(n int, r *xds.Request) []*xds.Response // to the n-th request
	fails   error
}

func (f *fake) Open(ctx context.Context, _ *xds.Type) (client.Stream, error) {
	return &fakeStream{f: f, ctx: ctx, responses: make(chan *xds.Response, 100)}, nil
}
func (f *fake) Variant() xds.Variant { return f.variant }
func (f *fake) Aggregated() bool     { return true }
func (f *fake) String() string       { return "xds://fake" }
func (f *fake) Close() error         { return nil }

type fakeStream struct {
	f         *fake
	ctx       context.Context
	n         int
	responses chan *xds.Response
}

func (s *fakeStream) Send(r *xds.Request) error {
	if s.f.fails != nil {
		return io.EOF
	}
	s.n++
	for i, a := range s.f.answer(s.n, r) {
		a.Nonce = fmt.Sprintf("%d.%d", s.n, i)
		s.responses <- a
	}
	return nil
}

func (s *fakeStream) Recv() (*xds.Response, error) {
	if s.f.fails != nil {
		return nil, s.f.fails
	}
	select {
	case r := <-s.responses:
		return r, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

func response(t *xds.Type, names ...string) *xds.Response {
	r := &xds.Response{Type: t, Version: "v", Changes: &xds.Changes{}}
	for _, n := range names {
		if missing, is := strings.CutPrefix(n, "-"); is {
			r.Removed = append(r.Removed, missing)
			continue
		}
		r.Upserts = append(r.Upserts, xds.NewResource(t, n, []byte(n)))
	}
	return r
}

// first answers the first request of each type, by its short name.
func first(answers map[string][]*xds.Response) func(int, *xds.Request) []*xds.Response {
	return func(_ int, r *xds.Request) []*xds.Response {
		defer delete(answers, r.Type.String())
		return answers[r.Type.String()]
	}
}

func text(a *Answer) string {
	var words []string
	for _, r := range a.Resources {
		words = append(words, r.Type.String()+"/"+r.Name)
		if r.Refused != nil {
			words = append(words, "refused")
		}
	}
	for _, m := range a.Missing {
		words = append(words, "-"+m.Type.String()+"/"+m.Name+map[bool]string{true: ":said"}[m.Denied])
	}
	for _, m := range a.Malformed {
		words = append(words, "broken "+m.Type.String()+"/"+m.Name)
	}
	if a.Unfinished {
		words = append(words, "unfinished")
	}
	for _, e := range a.Ends {
		words = append(words, e.Err.Error())
	}
	return strings.Join(words, " ")
}

func ask(t *xds.Type, names ...string) Asked { return Asked{t, names} }

func TestAll(t *testing.T) {
	const timeout, settle = 5 * time.Second, 500 * time.Millisecond
	routes := func(r *xds.Resource) []xds.Ref {
		switch {
		case r.Type.Is(xds.Listener):
			return []xds.Ref{{Type: xds.Route, Name: "r-" + r.Name}, {Type: xds.Cluster, Name: xds.Wildcard}}
		case r.Type.Is(xds.Route):
			return []xds.Ref{{Type: xds.Cluster, Name: "c"}}
		}
		return nil
	}
	for name, tt := range map[string]struct {
		variant xds.Variant
		asked   []Asked
		refs    func(*xds.Resource) []xds.Ref
		answers map[string][]*xds.Response
		fails   error
		want    string
		took    time.Duration
	}{
		"all clusters of SotW are one response": {asked: []Asked{ask(xds.Cluster, "*")},
			answers: map[string][]*xds.Response{"CDS": {response(xds.Cluster, "b", "a")}}, want: "CDS/a CDS/b"},
		"an empty response is an answer": {asked: []Asked{ask(xds.Cluster, "*")},
			answers: map[string][]*xds.Response{"CDS": {response(xds.Cluster)}}, want: ""},
		"another response may have more": {asked: []Asked{ask(xds.Route, "*")},
			answers: map[string][]*xds.Response{"RDS": {response(xds.Route, "a"), response(xds.Route, "b")}}, want: "RDS/a RDS/b", took: settle},
		"so may another delta response": {variant: xds.Delta, asked: []Asked{ask(xds.Cluster, "*")},
			answers: map[string][]*xds.Response{"CDS": {response(xds.Cluster, "a"), response(xds.Cluster, "b")}}, want: "CDS/a CDS/b", took: settle},
		"names need no rest": {variant: xds.Delta, asked: []Asked{ask(xds.Route, "a", "b")},
			answers: map[string][]*xds.Response{"RDS": {response(xds.Route, "a", "b")}}, want: "RDS/a RDS/b"},
		"a name that does not exist": {variant: xds.Delta, asked: []Asked{ask(xds.Route, "a", "b")},
			answers: map[string][]*xds.Response{"RDS": {response(xds.Route, "a", "-b")}}, want: "RDS/a -RDS/b:said"},
		"a name without an answer": {asked: []Asked{ask(xds.Route, "a", "b")},
			answers: map[string][]*xds.Response{"RDS": {response(xds.Route, "a")}}, want: "RDS/a -RDS/b", took: timeout},
		"no answer": {asked: []Asked{ask(xds.Cluster, "*")}, want: "-CDS/*", took: timeout},
		"the references of a resource": {asked: []Asked{ask(xds.Listener, "l")}, refs: routes,
			answers: map[string][]*xds.Response{"LDS": {response(xds.Listener, "l")}, "RDS": {response(xds.Route, "r-l")}, "CDS": {response(xds.Cluster, "c")}},
			want:    "CDS/c LDS/l RDS/r-l"},
		"the reference is covered by the wildcard": {asked: []Asked{ask(xds.Listener, "*"), ask(xds.Cluster, "*")}, refs: routes,
			answers: map[string][]*xds.Response{"LDS": {response(xds.Listener, "l")}, "RDS": {response(xds.Route, "r-l")}, "CDS": {response(xds.Cluster, "d")}},
			want:    "CDS/d LDS/l RDS/r-l"},
		"no stream": {asked: []Asked{ask(xds.Listener, "*"), ask(xds.Route, "r")}, fails: errors.New("no such server"), want: "no such server"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				a, err := All(t.Context(), Options{
					Transport: &fake{variant: tt.variant, answer: first(tt.answers), fails: tt.fails},
					Asked:     tt.asked, Refs: tt.refs, Timeout: timeout, Settle: settle,
				})
				if err != nil {
					t.Fatal(err)
				}
				if got := text(a); got != tt.want {
					t.Errorf("got %s\nwant %s", got, tt.want)
				}
				if took := time.Since(began); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
			})
		})
	}
	t.Run("it is interrupted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := All(ctx, Options{Transport: &fake{answer: first(nil)}, Asked: []Asked{ask(xds.Cluster, "*")}, Timeout: timeout, Settle: settle})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	})
}

// A malformed resource is reported, and answers the question for its name.
func TestMalformed(t *testing.T) {
	broken := func(r *xds.Response, names ...string) *xds.Response {
		for _, n := range names {
			r.Malformed = append(r.Malformed, &xds.MalformedError{Name: n, Err: errors.New("it cannot be read: " + n)})
		}
		return r
	}
	for name, tt := range map[string]struct {
		asked    Asked
		response *xds.Response
		want     string
	}{
		"beside what can":   {ask(xds.Cluster, "*"), broken(response(xds.Cluster, "a"), "", "b"), "CDS/a broken CDS/ broken CDS/b"},
		"alone":             {ask(xds.Cluster, "*"), broken(response(xds.Cluster), "b"), "broken CDS/b"},
		"asked for by name": {ask(xds.Route, "b"), broken(response(xds.Route), "b"), "broken RDS/b"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				a, err := All(t.Context(), Options{Asked: []Asked{tt.asked}, Timeout: 5 * time.Second,
					Transport: &fake{answer: func(int, *xds.Request) []*xds.Response { // also to each refusal
						if time.Since(began) > 0 {
							return nil
						}
						time.Sleep(time.Millisecond)
						again := *tt.response
						return []*xds.Response{&again}
					}}})
				if err != nil {
					t.Fatal(err)
				}
				if got := text(a); got != tt.want {
					t.Errorf("got %s, want %s", got, tt.want)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// All ends though the server sends new names forever: also if each refers to another that comes, or to
// one that does not.
func TestEndless(t *testing.T) {
	const timeout, settle = 5 * time.Second, 500 * time.Millisecond
	for name, tt := range map[string]struct {
		refs  bool
		there bool
		took  time.Duration
	}{
		"names":                          {took: timeout + settle},
		"resources that refer to others": {refs: true, there: true, took: most * timeout}, // or less: when all was answered for a moment
		"that refer to missing names":    {refs: true, took: most * timeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{variant: xds.Delta, answer: func(n int, r *xds.Request) []*xds.Response {
					switch {
					case r.Type.Is(xds.Cluster):
						time.Sleep(100 * time.Millisecond)
						return []*xds.Response{response(xds.Cluster, strconv.Itoa(n))}
					case tt.there && len(r.Subscribe) > 0:
						return []*xds.Response{response(xds.Endpoint, r.Subscribe...)}
					}
					return nil
				}}
				o := Options{Transport: f, Asked: []Asked{ask(xds.Cluster, "*")}, Timeout: timeout, Settle: settle}
				if tt.refs {
					o.Refs = func(r *xds.Resource) []xds.Ref {
						if r.Type.Is(xds.Cluster) {
							return []xds.Ref{{Type: xds.Endpoint, Name: r.Name}}
						}
						return nil
					}
				}
				began := time.Now()
				a, err := All(t.Context(), o)
				if err != nil || !a.Unfinished || len(a.Resources) < 50 {
					t.Errorf("unfinished: %v, %d resources, %v", a.Unfinished, len(a.Resources), err)
				}
				if took := time.Since(began); took < timeout || took > tt.took+time.Second {
					t.Errorf("took %v, want at most %v", took, tt.took)
				}
			})
		})
	}
}

// A type without a row in the table is identified by its URL.
func TestUnknownType(t *testing.T) {
	const url = "type.googleapis.com/acme.Thing"
	synctest.Test(t, func(t *testing.T) {
		a, err := All(t.Context(), Options{
			Transport: &fake{answer: first(map[string][]*xds.Response{xds.TypeOf(url).String(): {response(xds.TypeOf(url), "a")}})},
			Asked:     []Asked{ask(xds.TypeOf(url), "a")}, Timeout: time.Second, Settle: time.Second,
		})
		if err != nil || len(a.Resources) != 1 || a.Resources[0].Version != "v" {
			t.Error(a, err)
		}
	})
}

// The effect of a refusal is visible, word for word.
func TestRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		f := &fake{answer: func(n int, r *xds.Request) []*xds.Response {
			if n == 3 {
				return nil
			}
			return []*xds.Response{response(xds.Cluster, "a", "b"+strconv.Itoa(n))}
		}}
		var said []string
		for s, err := range Watch(ctx, Options{Transport: f, Asked: []Asked{ask(xds.Cluster, "*")}, Refuse: "I do not like it"}) {
			switch {
			case err != nil:
				t.Fatal(err)
			case s.Request != nil && s.Request.Error != nil:
				said = append(said, "nack "+s.Request.Nonce+" "+s.Request.Error.Message)
			case s.Request != nil:
				said = append(said, "request "+s.Request.Nonce)
			case s.Response != nil:
				said = append(said, "response "+s.Response.Nonce)
			}
		}
		want := []string{"request ", "response 1.0", "nack 1.0 I do not like it", "response 2.0", "nack 2.0 I do not like it"}
		// A response is reported when it comes, its request when it is sent.
		slices.Sort(said)
		slices.Sort(want)
		if !slices.Equal(said, want) {
			t.Errorf("%q", said)
		}
	})
}
