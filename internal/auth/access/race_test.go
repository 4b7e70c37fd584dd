package access_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/internal/auth/access"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// A tenantSource is a source whose streams all have the same identity.
type tenantSource struct {
	*access.Source[*store.Watch]
	name string
}

type tenantKey struct{}

func (s tenantSource) Watch(ctx context.Context, n *xds.Node) (*access.View, error) {
	return s.Source.Watch(context.WithValue(ctx, tenantKey{}, s.name), n)
}

// A policyRace changes policies, commits resources and opens streams at the same time. The resource
// of round n is committed when all later policies hide it. So no stream may ever get it, however late
// the stream learns of the policy.
type policyRace struct {
	*testing.T
	st  *store.Store
	src *access.Source[*store.Watch]
}

const (
	raceTenants = 10
	raceStreams = 10 // of each tenant
	raceRounds  = 60
)

func (r *policyRace) policy(round int) {
	var hidden []string
	for n := range round + 1 {
		hidden = append(hidden, fmt.Sprintf("round-%d/**", n))
	}
	now := ""
	if round%2 == 0 {
		now = `, "now-and-then/**"`
	}
	r.src.SetPolicy(policy(r.T, fmt.Sprintf(`
rules:
- identity: {dns: "{n}"}
  node: {id: "**"}
  names: {CDS: [end, shared, "{n}/**", "round-**"%s]}
- deny: true
  names: {CDS: ["%s"]}
`, now, strings.Join(hidden, `", "`))))
}

func (r *policyRace) commit(body int, names ...string) {
	if _, err := r.st.Update(func(tx *store.Tx) error {
		for _, name := range names {
			if gone, is := strings.CutPrefix(name, "-"); is {
				tx.Delete(xds.Cluster, gone)
				continue
			}
			m := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
			m = protowire.AppendString(protowire.AppendTag(m, 28, protowire.BytesType), fmt.Sprint(body)) // alt_stat_name
			tx.Set(xds.NewResource(xds.Cluster, name, m))
		}
		return nil
	}); err != nil {
		r.Error(err)
	}
}

// stream runs until it has the last committed resource, and checks each response.
func (r *policyRace) stream(c *xdstest.Client, tenant string, names ...string) {
	c.Subscribe(xds.Cluster, names...)
	for {
		resp := c.Next(xds.Cluster)
		end := false
		for _, is := range resp.Resources {
			of, _, owned := strings.Cut(is.Name, "/")
			switch {
			case is.Name == "end":
				end = true
			case strings.HasPrefix(is.Name, "round-"), owned && of != tenant && of != "now-and-then":
				r.Errorf("SAFE-13 a stream of %s got %s", tenant, is.Name)
			}
		}
		c.ACK(resp)
		if end {
			break
		}
	}
	want := []string{"end", "shared", tenant + "/own"}
	if held := c.Held(xds.Cluster); !slices.Equal(slices.Sorted(slices.Values(held)), want) {
		r.Errorf("a stream of %s has %q in the end, want %q", tenant, held, want)
	}
}

// While policies change, streams open and commits happen, no stream gets a forbidden resource. In the
// end each stream has all resources that it may see.
func TestPolicyRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &policyRace{T: t, st: store.New()}
		r.src = access.New(r.st, nil, access.Options{Identity: func(ctx context.Context) (access.Identity, error) {
			return access.Identity{Kind: access.MTLS, DNS: []string{ctx.Value(tenantKey{}).(string)}}, nil
		}})
		r.policy(0)
		var own, all []string
		for n := range raceTenants {
			own = append(own, fmt.Sprintf("t%d/own", n))
		}
		r.commit(0, append(own, "shared", "now-and-then/x")...)
		for n := range raceRounds {
			all = append(all, fmt.Sprintf("round-%d/x", n))
		}

		var streams, writers sync.WaitGroup
		for n := range raceTenants {
			name := fmt.Sprintf("t%d", n)
			conn := xdstest.Serve(t, server.New(tenantSource{r.src, name}, server.WithLogger(slog.New(slog.DiscardHandler))))
			for i := range raceStreams {
				streams.Go(func() {
					time.Sleep(time.Duration(i*raceRounds/raceStreams) * time.Millisecond / 2) // streams open during the rounds
					opts := []xdstest.Option{xdstest.WithNode(xds.Node{ID: fmt.Sprint(name, "-", i)}), xdstest.WithTimeout(time.Hour)}
					open, ask := xdstest.Delta, []string{"*"}
					if i%2 == 0 {
						open = xdstest.SotW
					}
					if i%4 > 1 {
						ask = slices.Concat(own, all, []string{"end", "shared", "now-and-then/x"})
					}
					r.stream(open(t, conn, opts...), name, ask...)
				})
			}
		}
		writers.Go(func() {
			for n := range raceRounds {
				r.policy(n)
				r.commit(n, all[n], "now-and-then/x")
				if n%3 == 0 { // without a pause, the next policy comes before any stream calls Next
					time.Sleep(time.Millisecond)
				}
			}
		})
		writers.Go(func() {
			rnd := rand.New(rand.NewPCG(1, 13))
			for n := range 5 * raceRounds {
				r.commit(n, own[rnd.IntN(len(own))], "shared")
				if n%10 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
		writers.Wait()
		r.policy(2*raceRounds + 1) // this one hides now-and-then
		r.commit(0, "end")
		streams.Wait()
	})
}
