package protocoltest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// A story lists the steps of a world; nil: no story is wanted.
type story []string

func (s *story) logf(format string, args ...any) {
	if s != nil {
		*s = append(*s, fmt.Sprintf(format, args...))
	}
}

// A broken is the panic that ends a world with a failure.
type broken struct{ error }

func (*story) fail(format string, args ...any) { panic(broken{fmt.Errorf(format, args...)}) }

// play runs a world and returns its failure.
func (s *story) play(run func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case broken:
			err = p.error
		default:
			s.logf("panic")
			panic(p)
		}
	}()
	run()
	return nil
}

// A commitText describes the touched names of a commit.
type commitText struct {
	*content
	touched xds.Names
}

func (c commitText) String() string {
	var b strings.Builder
	for _, k := range kinds {
		for i, name := range c.touched[k.url] {
			if slices.Contains(c.touched[k.url][:i], name) {
				continue
			}
			if r := c.view.Table(k.typ()).Lookup(name); r != nil {
				fmt.Fprintf(&b, " %s %s", k.typ(), show(r))
			} else {
				fmt.Fprintf(&b, " %s -%s", k.typ(), name)
			}
		}
	}
	return b.String()
}

// A requestText describes a request.
type requestText xds.Request

func (r requestText) String() string {
	var b strings.Builder
	if r.Type != nil {
		b.WriteString(r.Type.Short)
	}
	if r.Nonce != "" {
		fmt.Fprintf(&b, " nonce=%s", r.Nonce)
	}
	if r.Version != "" {
		fmt.Fprintf(&b, " version=%s", r.Version)
	}
	writeLists(&b, list{"names", r.Names}, list{"sub", r.Subscribe}, list{"unsub", r.Unsubscribe})
	if r.Initial != nil {
		fmt.Fprintf(&b, " init=%v", r.Initial)
	}
	if r.Error != nil {
		fmt.Fprintf(&b, " NACK")
	}
	if r.Node != nil {
		fmt.Fprintf(&b, " +node %s", r.Node.UserAgentName)
	}
	return b.String()
}

// A responseText describes a response.
type responseText xds.Response

func (r *responseText) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s nonce=%s version=%s [", r.Type, r.Nonce, r.Version)
	for i, x := range r.Upserts {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(show(x))
	}
	b.WriteString("]")
	for _, x := range r.Beats {
		fmt.Fprintf(&b, " beat %s", show(x))
	}
	writeLists(&b, list{"removed", r.Removed}, list{"absent", r.Absent}, list{"missing", r.Missing})
	return b.String()
}

// A list is a field with names.
type list struct {
	what  string
	names []string
}

// writeLists writes the lists that have names.
func writeLists(b *strings.Builder, lists ...list) {
	for _, l := range lists {
		if len(l.names) > 0 {
			fmt.Fprintf(b, " %s=%q", l.what, l.names)
		}
	}
}
