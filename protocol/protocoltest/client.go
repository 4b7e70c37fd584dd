package protocoltest

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A client is one kind of client at the other end of a lane.
type client interface {
	// connected starts a new stream.
	connected()
	// act changes the subscriptions of the application, by the dice of the plan only, and returns a
	// description of the change.
	act() string
	receive(r *xds.Response)
	// requests returns the requests to send now, in order.
	requests() []xds.Request
	advance(now time.Time)
	// deadline returns the time at which the client acts by itself; zero: never.
	deadline() time.Time
	// calm ends the random behaviour: from now on the client refuses nothing.
	calm()
	// held returns a copy of the cache of a type; nil: it is not compared.
	held(t *xds.Type) map[string]*xds.Resource
	// expire drops a resource without a heartbeat for its TTL, and reports whether the client held it until
	// now.
	expire(t *xds.Type, r *xds.Resource) bool
	// broken describes how the client would lose traffic with the resources that it holds, or
	// returns "". The first function reports clusters that were sent to the client and that it did
	// not accept. The second function reports resources of an earlier stream whose version may be
	// unknown.
	broken(spurns func(cluster string) bool, unknown func(*xds.Type, *xds.Resource) bool) string
	// wants returns the names, perhaps with "*", to which the client subscribes on this stream, and whether the
	// server must know exactly these when traffic has ended.
	wants(t *xds.Type) (names []string, all bool)
}

// passive has the methods of a client without clocks, of which no resources are compared.
type passive struct{}

func (passive) advance(time.Time)                                                    {}
func (passive) deadline() time.Time                                                  { return time.Time{} }
func (passive) broken(func(string) bool, func(*xds.Type, *xds.Resource) bool) string { return "" }

// difference returns the names of a set that another set lacks, sorted.
func difference(a, b map[string]bool) (names []string) {
	for _, n := range slices.Sorted(maps.Keys(a)) {
		if !b[n] {
			names = append(names, n)
		}
	}
	return names
}

var errRefused = errors.New("refused")

// A taste decides which responses a client refuses: some by chance, and always those that its salt rejects.
type taste struct {
	dice  dice
	salt  byte
	picky bool // refuses only some types: make before break depends on the clusters that a client holds
	off   bool
}

func newTaste(w *world) taste {
	salt := byte('x')
	if w.chance.IntN(2) == 0 {
		salt = "0123456789abcdef"[w.chance.IntN(16)]
	}
	return taste{dice: w.chance, salt: salt, picky: w.content.whole, off: w.cfg.Accept || w.chance.IntN(3) == 0}
}

func (t *taste) refuse(r *xds.Resource) error {
	if t.off || t.picky && strings.Contains("ce", r.Name[:1]) {
		return nil
	}
	if r.Version[0] == t.salt || t.dice.IntN(20) == 0 {
		return errRefused
	}
	return nil
}

// agent chooses the node of a client, by the plan.
func agent(w *world) *xds.Node {
	n := &xds.Node{ID: "n", UserAgentName: []string{"", "envoy", "gRPC Go"}[w.plan.IntN(3)]}
	if f := w.plan.IntN(4); f > 0 {
		n.ClientFeatures = []string{"other", "xds.config.supports-resource-ttl", "xds.config.resource-in-sotw"}[:f]
	}
	return n
}
