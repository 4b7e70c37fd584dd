package transcripts

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// drain prints the responses and events of the sessions.
func (p *play) drain() {
	if p.held {
		return
	}
	for p.drainOnce() {
	}
	for _, s := range p.streams {
		if !s.over && (p.hints != Idle || s.awake) {
			p.release(s)
		}
	}
}

// drainOnce prints what each session has now, and reports whether siblings of a session may have more.
func (p *play) drainOnce() (again bool) {
	for _, s := range p.streams {
		if s.over || p.hints == Idle && !s.awake {
			continue
		}
		if s.client != nil {
			p.wake(s) // the step of a sibling has released its view
		}
		for r := range s.Responses() {
			p.response(s, r)
		}
		for r := range s.Responses() {
			p.response(s, r)
			fmt.Fprintf(&p.out, "error: the last response was withheld at first\n")
		}
		for e := range s.Events() {
			p.told.Note(s.Session, e)
			p.event(s, e)
		}
		if s.client != nil {
			again = p.wakeSiblings(s) || again
		}
	}
	return again
}

func (p *play) response(s *stream, r *xds.Response) {
	fmt.Fprintf(&p.out, "%s< %s nonce=%s", s.label, nameOf(r.Type), r.Nonce)
	if s.variant == xds.SotW || s.versions {
		fmt.Fprintf(&p.out, " v=%s", p.symbol(r.Type, r.Version))
	}
	upserts := r.Upserts
	if !r.Together {
		upserts = byName(upserts)
	}
	for _, u := range upserts {
		fmt.Fprintf(&p.out, " %s", textOfUpsert(r, u))
	}
	for _, b := range byName(r.Beats) {
		fmt.Fprintf(&p.out, " ~%s", textOfUpsert(r, b))
	}
	for _, list := range []struct {
		mark  string
		names []string
	}{{"-", r.Removed}, {"?", r.Absent}, {"!", r.Missing}} {
		for _, name := range slices.Sorted(slices.Values(list.names)) {
			fmt.Fprintf(&p.out, " %s%s", list.mark, quote(name))
		}
	}
	p.out.WriteByte('\n')
	p.check(s, r)
}

func byName(rs []*xds.Resource) []*xds.Resource {
	return slices.SortedFunc(slices.Values(rs), func(a, b *xds.Resource) int { return cmp.Compare(a.Name, b.Name) })
}

// textOfUpsert returns name@version/TTL(aliases).
func textOfUpsert(r *xds.Response, u *xds.Resource) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s@%s", quote(u.Name), quote(u.Version))
	if r.TTL && u.TTL > 0 {
		fmt.Fprintf(&b, "/%s", u.TTL)
	}
	for i, a := range u.Aliases {
		fmt.Fprintf(&b, "%c%s", "(,"[min(i, 1)], quote(a))
	}
	if len(u.Aliases) > 0 {
		b.WriteByte(')')
	}
	return b.String()
}

// check tests the rules that hold for every response.
func (p *play) check(s *stream, r *xds.Response) {
	fail := func(format string, args ...any) { fmt.Fprintf(&p.out, "error: "+format+"\n", args...) }
	// "All server responses will contain a nonce"; the nonces of a stream differ.
	if r.Nonce == "" || s.nonces[r.Nonce] {
		fail("the nonce is empty or was used before")
	}
	s.nonces[r.Nonce] = true
	if r.Version == "" && s.variant == xds.SotW {
		fail("no version_info")
	}
	if s.only != nil && !r.Type.Is(s.only) {
		fail("the stream does not carry this type")
	}
	if !s.opened[r.Type.URL] {
		fail("no request asked for this type")
	}
	if s.variant == xds.SotW && len(r.Removed)+len(r.Absent) > 0 {
		fail("removed names in a sotw response")
	}
	if len(r.Beats) > 0 && (!r.TTL || s.variant == xds.SotW && r.Type.FullState) {
		fail("heartbeats without TTLs, or for a full-state type in SotW")
	}
	// "It is an error for a server to send a single response that contains the
	// same resource name twice."
	seen := map[string]bool{}
	once := func(name string) {
		if seen[name] {
			fail("%s occurs twice", quote(name))
		}
		seen[name] = true
	}
	tab := p.view.Table(r.Type)
	for _, u := range r.Upserts {
		once(u.Name)
		// A full state has the earlier state of a resource that waits for others of its type (ADS-10).
		waits := s.variant == xds.SotW && r.Type.FullState && r.Type.After == nil
		if now := tab.Lookup(u.Name); now != u && (now != nil && !now.OnDemand && !waits || !p.had(r.Type, u)) {
			fail("%s is neither in the view nor departed", quote(u.Name))
		}
	}
	for _, b := range r.Beats {
		once(b.Name)
		// "version matching the most recently sent version"
		if now := tab.Lookup(b.Name); now != b && !p.had(r.Type, b) || b.TTL == 0 {
			fail("the heartbeat of %s is for no resource with a TTL, in the view or departed", quote(b.Name))
		}
	}
	gone := slices.Concat(r.Removed, r.Absent)
	for _, name := range gone {
		once(name)
		if p.seen().(xds.Undecided).Undecided(r.Type, name) {
			fail("%s is undecided", quote(name))
		}
	}
	for _, name := range r.Absent {
		if tab.Lookup(name) != nil || tab.Aliased(name).Len() > 0 {
			fail("%s exists", quote(name))
		}
	}
	for _, name := range r.Missing {
		if tab.Lookup(name) != nil || s.variant == xds.Delta && !slices.Contains(gone, name) || p.seen().(xds.Undecided).Undecided(r.Type, name) {
			fail("%s is not missing", quote(name))
		}
	}
}

// had reports whether the view had the resource recently.
func (p *play) had(t *xds.Type, r *xds.Resource) bool {
	return slices.ContainsFunc(p.recent[t.URL], func(old *xds.Table) bool { return old.Lookup(r.Name) == r })
}

func (p *play) event(s *stream, e protocol.Event) {
	if !p.kinds[e.Kind.String()] {
		return
	}
	fmt.Fprintf(&p.out, "%s! %s %s", s.label, e.Kind, nameOf(e.Type))
	if e.Name != "" {
		fmt.Fprintf(&p.out, " %s", quote(e.Name))
	}
	if e.Nonce != "" {
		fmt.Fprintf(&p.out, " nonce=%s", quote(e.Nonce))
	}
	version := func(key, v string) {
		if v != "" && s.variant == xds.SotW {
			fmt.Fprintf(&p.out, " %s=%s", key, p.symbol(e.Type, v))
		}
	}
	switch e.Kind {
	case protocol.Acked, protocol.Nacked:
		version("v", e.Version)
		version("in-use", e.InUse)
		if !e.Settled {
			p.out.WriteString(" late")
		}
		if e.Refuses {
			p.out.WriteString(" refuses")
		}
	case protocol.Recovered:
		if !e.Settled {
			p.out.WriteString(" unaccepted")
		}
	case protocol.Subscribed:
		fmt.Fprintf(&p.out, " %d", e.Count)
		if e.Wildcard {
			p.out.WriteString(" *")
		}
	case protocol.Opened:
		version("v", e.Version)
		fmt.Fprintf(&p.out, " %d", e.Count)
	case protocol.Sent:
		fmt.Fprintf(&p.out, " %d removed=%d beats=%d", e.Count, e.Removed, e.Beats)
	default: // have neither versions nor counts that a transcript could predict
	}
	if e.Error != nil {
		fmt.Fprintf(&p.out, " error=%q", e.Error.Message)
	}
	p.out.WriteByte('\n')
}

// symbol returns how a version of a type is printed: a hash as v1, v2, …
func (p *play) symbol(t *xds.Type, version string) string {
	if b, err := hex.DecodeString(version); err != nil || len(b) != 8 {
		return quote(version)
	}
	seen := p.symbols[t.URL]
	if seen == nil {
		seen = map[string]string{}
		p.symbols[t.URL] = seen
	}
	if seen[version] == "" {
		seen[version] = fmt.Sprint("v", len(seen)+1)
	}
	return seen[version]
}

// hash returns the version that symbol prints.
func (p *play) hash(t *xds.Type, symbol string) (string, error) {
	if t == nil || !strings.HasPrefix(symbol, "v") || strings.Trim(symbol[1:], "0123456789") != "" {
		return symbol, nil
	}
	for hash, sym := range p.symbols[t.URL] {
		if sym == symbol {
			return hash, nil
		}
	}
	return "", fmt.Errorf("%s has not had version %s yet", nameOf(t), symbol)
}
