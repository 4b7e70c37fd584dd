package protocoltest

import (
	"errors"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A client is one personality on the other end of a line.
type client interface {
	// connected tells of a new stream.
	connected()
	// act lets the application change its mind, by the plan's dice only, and
	// says what it did.
	act() string
	receive(r *xds.Response)
	// requests returns what is to be sent now, in order.
	requests() []xds.Request
	advance(now time.Time)
	// deadline is when the client does something by itself; zero: never.
	deadline() time.Time
	// calm ends the chaos: from now on nothing is refused.
	calm()
	// held is a copy of the cache of a type; nil: not to be compared.
	held(t *xds.Type) map[string]*xds.Resource
	// expire drops a resource of which nothing was heard for its TTL, and reports whether
	// that was held until now.
	expire(t *xds.Type, r *xds.Resource) bool
	// broken says how what the client holds would lose traffic, or "". Clusters that it
	// was offered and has not taken are its own loss, and of what it has from before
	// nobody may know.
	broken(spurns func(cluster string) bool, unknown func(*xds.Type, *xds.Resource) bool) string
	// idle checks the client when all is silent.
	idle(l *ledger) error
}

var errRefused = errors.New("refused")

// A taste decides what a client refuses: by chance, and always what its salt
// does not like.
type taste struct {
	dice  dice
	salt  byte
	picky bool // of some only: make before break is about who has the clusters
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

// agent says who it is, by the plan.
func agent(w *world) *xds.Node {
	n := &xds.Node{ID: "n", UserAgentName: []string{"", "envoy", "gRPC Go"}[w.plan.IntN(3)]}
	if f := w.plan.IntN(4); f > 0 {
		n.ClientFeatures = []string{"other", "xds.config.supports-resource-ttl", "xds.config.resource-in-sotw"}[:f]
	}
	return n
}
