package protocoltest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

func (w *world) logf(format string, args ...any) {
	*w.story = append(*w.story, fmt.Sprintf(format, args...))
}

func (w *world) describe(touched xds.Names) string {
	var b strings.Builder
	for _, k := range kinds {
		for i, name := range touched[k.url] {
			if slices.Contains(touched[k.url][:i], name) {
				continue
			}
			if r := w.content.view.Table(k.typ()).Lookup(name); r != nil {
				fmt.Fprintf(&b, " %s %s", k.typ(), show(r))
			} else {
				fmt.Fprintf(&b, " %s -%s", k.typ(), name)
			}
		}
	}
	return b.String()
}

func describeRequest(r xds.Request) string {
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
	if r.Names != nil {
		fmt.Fprintf(&b, " names=%q", r.Names)
	}
	if r.Subscribe != nil {
		fmt.Fprintf(&b, " sub=%q", r.Subscribe)
	}
	if r.Unsubscribe != nil {
		fmt.Fprintf(&b, " unsub=%q", r.Unsubscribe)
	}
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

func describeResponse(r *xds.Response) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s nonce=%s version=%s [", r.Type.Short, r.Nonce, r.Version)
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
	for _, list := range []struct {
		what  string
		names []string
	}{{"removed", r.Removed}, {"absent", r.Absent}, {"missing", r.Missing}} {
		if len(list.names) > 0 {
			fmt.Fprintf(&b, " %s=%q", list.what, list.names)
		}
	}
	return b.String()
}
