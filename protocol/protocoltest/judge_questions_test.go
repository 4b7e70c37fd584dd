package protocoltest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// questions are what a line "? QUESTION ARGUMENT…: ANSWER" of a text case can ask the ledger. The answer
// "nothing" is the empty text.
var questions = map[string]func(c *textCase, args ...string) string{
	"covers": aboutName(func(l *ledger, a *account, name string) bool { return a.covers(name) }),
	"crossed": func(c *textCase, args ...string) string {
		return yes(c.account(args[0]).crossed(args[1], args[2]))
	},
	"coldCluster": func(c *textCase, args ...string) string {
		short, name, _ := strings.Cut(args[1], "/")
		typ, _ := typeOf(short)
		e := &envoy{warming: map[string]time.Time{args[0]: epoch}, fresh: map[string]bool{args[0]: true}, needs: map[string][]need{args[0]: {{typ, name}}}}
		return e.coldCluster(c.ledger)
	},
	"converged": func(c *textCase, args ...string) string { return c.converged(args[0], args[1:]) },
	"earlier": func(c *textCase, args ...string) string {
		var held []string
		for _, r := range earlier(c.ledger).of(c.account(args[0]).typ, args[1]) {
			held = append(held, string(r.Body))
		}
		return strings.Join(held, " ")
	},
	"ttlExcuses": func(c *textCase, args ...string) string {
		lost, why := c.ledger.ttlExcuses(clock{typ: c.account(args[0]).typ, res: parseResource(args[1]), fed: epoch})
		return fmt.Sprintf("lost=%v %v", lost, why)
	},
	"keepsAlive":   func(c *textCase, args ...string) string { return yes(c.ledger.keepsAlive()) },
	"holdsUnknown": aboutName(func(l *ledger, a *account, name string) bool { return l.holdsUnknown(a.typ, name) }),
	"isReferred": func(c *textCase, args ...string) string {
		return yes(c.ledger.isReferred(c.account(args[0]), args[1], doubtOf(args[2])))
	},
	"statesInterests": func(c *textCase, args ...string) string { return yes(c.ledger.statesInterests(c.account(args[0]))) },
	"mayRefer": func(c *textCase, args ...string) (why string) {
		typ, _ := typeOf(args[0])
		c.ledger.mayRefer(c.ledger.account(xds.Route), typ, args[1:2], removal{}, doubtOf(args[2]), &why)
		return why
	},
	"mayBeKept": aboutName(func(l *ledger, a *account, name string) bool { return l.mayBeKept(a, name) }),
	"missing":   func(c *textCase, args ...string) string { return c.ledger.missing(c.account(args[0]), args[1]) },
	"heldBackNames": func(c *textCase, args ...string) string {
		var all []string
		for url, names := range c.ledger.heldBackNames() {
			for _, name := range names {
				all = append(all, nameOf(xds.TypeOf(url))+"/"+name)
			}
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	},
	"mustBeRemoved":    aboutName(func(l *ledger, a *account, name string) bool { return l.mustBeRemoved(a, name) }),
	"statesNoClusters": func(c *textCase, args ...string) string { return yes(c.ledger.statesNoClusters()) },
	"missingHeartbeat": func(c *textCase, args ...string) string { return c.ledger.missingHeartbeat(c.account(args[0])) },
	"tardy":            func(c *textCase, args ...string) string { return yes(c.ledger.tardy) },
	"waitsForView": func(c *textCase, args ...string) string {
		name, _, exists := strings.Cut(args[1], "=")
		if !exists {
			return yes(c.ledger.waitsForView(c.account(args[0]), name, nil))
		}
		return yes(c.ledger.waitsForView(c.account(args[0]), name, parseResource(args[1])))
	},
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// aboutName is a question about one name: ? QUESTION TYPE NAME.
func aboutName(is func(l *ledger, a *account, name string) bool) func(*textCase, ...string) string {
	return func(c *textCase, args ...string) string { return yes(is(c.ledger, c.account(args[0]), args[1])) }
}

func doubtOf(word string) doubt {
	return map[string]doubt{"surely": surely, "possibly": possibly}[word]
}

// account returns the account of a type by its short name; it fails if the client has not opened the type.
func (c *textCase) account(short string) *account {
	typ, _ := typeOf(short)
	a := c.ledger.account(typ)
	if a == nil {
		c.fail("%s is not open", short)
	}
	return a
}

// converged compares a client at rest that holds these resources of one type with the view, and returns the
// failure. expired=NAME is a resource that the client dropped by its TTL; lost=NAME is one whose heartbeat was
// lost in flight.
func (c *textCase) converged(short string, words []string) (failure string) {
	holder := holding{typ: c.account(short).typ, has: map[string]*xds.Resource{}}
	expired := map[[2]string]bool{}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		if key == "expired" || key == "lost" {
			expired[[2]string{holder.typ.URL, value}] = key == "lost"
			continue
		}
		r := parseResource(w)
		holder.has[r.Name] = r
	}
	defer func() {
		if r := recover(); r != nil {
			failure = fmt.Sprint(r)
		}
	}()
	n := &lane{world: &world{cfg: Config{Variant: c.ledger.variant}}, client: holder, ledger: c.ledger, expired: expired}
	n.converged()
	return ""
}

// A holding is a client that holds resources of one type, and does nothing.
type holding struct {
	client
	typ *xds.Type
	has map[string]*xds.Resource
}

func (h holding) held(t *xds.Type) map[string]*xds.Resource {
	if !t.Is(h.typ) {
		return nil
	}
	return maps.Clone(h.has)
}
