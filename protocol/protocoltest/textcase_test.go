package protocoltest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/tabletest"
	"github.com/chancery-xds/chancery/xds"
)

func (c *textCase) option(words []string) (err error) {
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch opts := &c.ledger.opts; key {
		case "ttl":
			c.ledger.ttl = true
		case "resumes":
			c.ledger.resumes = true
		case "errors":
			opts.ResourceErrors = true
		case "bodyless":
			opts.Bodyless = true
		case "refused":
			opts.Refused = func(*xds.Type) bool { return value == "true" }
		case "only":
			c.ledger.only, err = typeOf(value)
		case "grace":
			opts.Grace, err = time.ParseDuration(value)
		case "max":
			_, err = fmt.Sscan(value, &opts.MaxResponse)
		default:
			err = fmt.Errorf("unknown option %s", key)
		}
	}
	return err
}

func (c *textCase) commit(words []string) {
	next := maps.Clone(c.view)
	var typ *xds.Type
	for _, w := range words {
		if t, err := typeOf(w); err == nil && w[0] != '-' && !strings.Contains(w, "=") {
			typ = t
			continue
		}
		table := next.Table(typ)
		if next[typ.URL] == nil {
			table = xds.NewTable(typ)
		}
		c.past = append(c.past, table)
		if name, removed := strings.CutPrefix(w, "-"); removed {
			next[typ.URL] = tabletest.With(table, nil, name)
		} else {
			next[typ.URL] = tabletest.With(table, parseResources([]string{w}))
		}
	}
	c.view = next
	c.ledger.change(next)
}

func (c *textCase) request(typ *xds.Type, words []string) error {
	req := xds.Request{Type: typ, Node: &xds.Node{ClientFeatures: []string{"xds.config.supports-resource-ttl"}}}
	stale := false
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		list := strings.Split(value, ",")
		switch key {
		case "sub":
			req.Subscribe = list
		case "unsub":
			req.Unsubscribe = list
		case "names":
			req.Names = list
		case "has":
			for _, item := range list {
				name, version, literal := strings.Cut(item, "@")
				if !literal {
					r := parseResource(item)
					name, version = r.Name, r.Version
				}
				req.Initial = append(req.Initial, xds.Version{Name: name, Version: version})
			}
		case "version":
			req.Version = c.version(typ, value)
		case "nonce":
			req.Nonce = value
		case "error":
			req.Error = &xds.Status{Code: 3}
		case "stale":
			stale = true
		case "agent":
			req.Node = &xds.Node{UserAgentName: value}
		case "node":
			req.Node = map[string]*xds.Node{"plain": {}}[value]
		default:
			return fmt.Errorf("a request has no %s", key)
		}
	}
	c.ledger.receive(req, stale)
	return nil
}

func (c *textCase) response(typ *xds.Type, words []string) *xds.Response {
	r := &xds.Response{Type: typ, Changes: &xds.Changes{}}
	version, counting := "", ""
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch {
		case key == "nonce":
			r.Nonce = value
		case key == "version":
			version = c.version(typ, value)
		case key == "counting":
			counting = value
		case w[0] == '-':
			r.Removed = append(r.Removed, w[1:])
		case w[0] == '!':
			r.Missing = append(r.Missing, w[1:])
		case w[0] == '~':
			r.Beats = append(r.Beats, parseResource(w[1:]))
		default:
			r.Upserts = append(r.Upserts, parseResource(w))
		}
	}
	r.TTL = slices.ContainsFunc(slices.Concat(r.Upserts, r.Beats), func(x *xds.Resource) bool { return x.TTL > 0 })
	table := c.ledger.view.Table(typ)
	if r.Version = version; version == "" {
		r.Version = table.VersionWith(func(yield func(*xds.Stamp) bool) {
			for _, x := range r.Upserts {
				kept := c.ledger.variant == xds.SotW && typ.FullState && table.Lookup(x.Name) == nil
				if (kept || x.Name == counting) && !yield(x.Stamp) {
					return
				}
			}
		})
	}
	return r
}

// version returns the version of a table with resources, which are written {a=1,b=1}, or the text itself.
func (c *textCase) version(typ *xds.Type, text string) string {
	if !strings.HasPrefix(text, "{") {
		return text
	}
	return tabletest.With(xds.NewTable(typ), parseResources(strings.Split(strings.Trim(text, "{}"), ","))).Version()
}

// parseResource reads a resource as TestJudge writes it.
func parseResource(text string) *xds.Resource {
	text, onDemand := strings.CutPrefix(text, "?")
	left, refs, _ := strings.Cut(text, ">")
	name, content, _ := strings.Cut(left, "=")
	content, port, binds := strings.Cut(content, ":")
	name, alias, aliased := strings.Cut(name, "|")
	r := &xds.Resource{Stamp: &xds.Stamp{Name: name, Refs: []xds.Ref{}}, Body: []byte(text), OnDemand: onDemand}
	for ref := range strings.SplitSeq(refs, ",") {
		if short, to, ok := strings.Cut(ref, "/"); ok {
			typ, _ := typeOf(short)
			r.Refs = append(r.Refs, xds.Ref{Type: typ, Name: to})
		}
	}
	if refs == "?" {
		r.Refs = nil
	}
	if aliased {
		r.Aliases = []string{alias}
	}
	if binds {
		r.Addresses = &[]xds.Address{{Port: port}}
	}
	if strings.HasSuffix(content, "!") {
		r.TTL = 30 * time.Second
	}
	r.Seal("")
	return r
}

func parseResources(texts []string) (out []*xds.Resource) {
	for _, text := range texts {
		out = append(out, parseResource(text))
	}
	return out
}
