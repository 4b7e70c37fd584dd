package dns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Many names are asked with limited concurrency, and spread out over time; each result is reported once.
func TestManyNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := make([]Name, 200)
		for i := range names {
			names[i] = Name{fmt.Sprintf("b%d.example", i), 80}
		}
		told := map[Name]int{}
		w, err := New(names, func(n Name, all []Address) {
			told[n]++
			if len(all) != 1 {
				t.Error(n, all)
			}
		}, Options{Most: 4, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		at, most, asked := 0, 0, 0
		moments := map[time.Time]int{}
		w.ask = func(context.Context, question) (answer, error) {
			mu.Lock()
			at++
			asked++
			most = max(most, at)
			moments[time.Now().Truncate(time.Second)]++
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			at--
			return answer{records: []record{{addr: netip.MustParseAddr("10.0.0.1")}}, ttl: 10 * time.Minute}, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx) })
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		mu.Lock()
		if asked != 400 || most != 4 || len(told) != 200 {
			t.Errorf("%d questions, %d at once, %d names reported", asked, most, len(told))
		}
		mu.Unlock()
		time.Sleep(time.Hour)
		cancel()
		running.Wait()
		for n, times := range told {
			if times != 1 {
				t.Errorf("%v reported %d times", n, times)
			}
		}
		if len(moments) < 100 {
			t.Errorf("asked at %d moments only", len(moments))
		}
	})
}

// A watcher that ends while questions are open leaves nothing behind. Failures are only logged.
func TestEndsWhileItAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := Name{"b.example", 80}
		w, err := New([]Name{n}, func(n Name, all []Address) { t.Error(n, all) }, Options{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		w.Known(n, []Address{{netip.MustParseAddrPort("10.0.0.1:80"), "b.example", 0, 0}})
		w.ask = func(ctx context.Context, q question) (answer, error) {
			if q.typ == dnsmessage.TypeA {
				return answer{}, errors.New("SERVFAIL")
			}
			<-ctx.Done()
			return answer{}, ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		w.Run(ctx)
	})
}

// Options.Fault gets the look-ups that fail while addresses stay: each change once, and "" at the end.
func TestFault(t *testing.T) {
	t.Run("SAFE-17", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var got []string
			w, err := New([]Name{{"a.example", 80}, {"b.example", 80}}, func(Name, []Address) {}, Options{Log: slog.New(slog.DiscardHandler), MinTTL: time.Minute, MaxTTL: time.Minute, Fault: func(why string) { got = append(got, why) }})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			w.ask = func(_ context.Context, q question) (answer, error) {
				hour := int(time.Since(began) / time.Hour)
				switch {
				case hour == 1 && q.typ == dnsmessage.TypeA, hour == 2 && q == question{"a.example", dnsmessage.TypeA}:
					return answer{}, errors.New("SERVFAIL")
				case q.typ == dnsmessage.TypeAAAA || hour == 4:
					return answer{ttl: time.Minute}, nil
				}
				return answer{records: []record{{addr: netip.MustParseAddr("10.0.0.1")}}, ttl: time.Minute}, nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Hour)
			defer cancel()
			w.Run(ctx)
			const first, all = "DNS look-ups fail, so the last addresses stay: A a.example: SERVFAIL", " (and 1 more)"
			if said := strings.Join(got, "\n"); !strings.Contains(said, first+all+"\n"+first+"\n\n") || got[len(got)-1] != "" || strings.Count(said, first+all) != 1 || !strings.Contains(said, "b.example: no such records") && !strings.Contains(said, "a.example: no such records (and 1 more)") || len(got) > 12 {
				t.Errorf("%q", got)
			}
		})
	})
}

// A failing question that no name needs any more is not a fault.
func TestFaultOfRemovedTarget(t *testing.T) {
	t.Run("SAFE-17", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var last string
			w, err := New([]Name{{Host: "s.example"}}, func(Name, []Address) {}, Options{Log: slog.New(slog.DiscardHandler), MinTTL: time.Minute, MaxTTL: time.Minute, Fault: func(why string) { last = why }})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			w.ask = func(_ context.Context, q question) (answer, error) {
				late := time.Since(began) > time.Hour
				switch {
				case q.typ == dnsmessage.TypeSRV && late:
					return answer{records: []record{{target: "new.example", port: 80}}, ttl: time.Minute}, nil
				case q.typ == dnsmessage.TypeSRV:
					return answer{records: []record{{target: "old.example", port: 80}}, ttl: time.Minute}, nil
				case q.host == "old.example":
					return answer{}, errors.New("SERVFAIL")
				}
				return answer{records: []record{{addr: netip.MustParseAddr("10.0.0.1")}}, ttl: time.Minute}, nil
			}
			for _, want := range []string{"old.example: SERVFAIL", ""} {
				ctx, cancel := context.WithTimeout(t.Context(), 59*time.Minute)
				w.Run(ctx)
				cancel()
				if last == "" != (want == "") || !strings.Contains(last, want) {
					t.Errorf("%q, want %q", last, want)
				}
				time.Sleep(2 * time.Minute)
			}
		})
	})
}

// A name that does not exist is logged once with the answer, and again only after it had addresses.
func TestMissingNameIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w, err := New([]Name{{"nosuch.example", 80}, {"four.example", 80}}, func(Name, []Address) {}, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		w.ask = func(_ context.Context, q question) (answer, error) {
			switch {
			case q.host == "nosuch.example":
				return answer{unknown: true}, nil
			case q.typ == dnsmessage.TypeA:
				return answer{records: []record{{addr: netip.MustParseAddr("10.0.0.1")}}}, nil
			}
			return answer{}, nil // it has no IPv6 address
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		w.Run(ctx)
		const want = `msg="DNS name has no address: nothing is registered" name=nosuch.example`
		if got := log.String(); strings.Count(got, want) != 1 || !strings.Contains(got, "NXDOMAIN") || strings.Count(got, "level=WARN") != 1 {
			t.Error(got)
		}
	})
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{MinTTL: time.Hour}, {MinTTL: 1}, {Timeout: -1}, {Most: -1}, {Servers: []string{"10.0.0.1"}}} {
		if _, err := New(nil, nil, o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	if _, err := New([]Name{{"", 80}}, nil, Options{}); err == nil {
		t.Error("a name without a host is taken")
	}
	w, err := New([]Name{{"B.", 80}, {"b", 80}}, nil, Options{})
	if err != nil || len(w.tracker.names) != 1 || !slices.Equal(w.tracker.names[Name{"b", 80}].found, nil) {
		t.Error(err)
	}
}
