package daemon

import (
	"strings"

	"github.com/chancery-xds/chancery/internal/relay"
	"github.com/chancery-xds/chancery/xds"
)

// revisionOf returns the revision of a store that set a version, for status; "": unknown. The groups are separated
// by zero bytes.
func (d *daemon) revisionOf(groups string, t *xds.Type, name string, sum xds.Sum) string {
	if src, ok := d.source.(*storeSource); ok { // the source exists before the first client
		for group := range strings.SplitSeq(groups, "\x00") {
			if n := src.repo.RevisionOf(group, t, name, sum); n > 0 {
				return n.String()
			}
		}
	}
	return ""
}

// maxPassedRefusals is the maximum number of refused resources that a relay reports to its upstream.
const maxPassedRefusals = 100

// refusals returns a function that lists the refusals of clients for the upstream of a relay. It
// returns nil if the relay does not report refusals.
func (d *daemon) refusals() func() []relay.Refusal {
	if d.cfg.upstream == nil || !d.cfg.passRefusals {
		return nil
	}
	return func() (all []relay.Refusal) {
		for _, r := range d.held.Refused(maxPassedRefusals) {
			all = append(all, relay.Refusal(r))
		}
		return all
	}
}

// refusalsChanged returns a function that makes a relay report refusals to its upstream again. It
// returns nil if the relay does not report refusals.
func (d *daemon) refusalsChanged() func() {
	if d.cfg.upstream == nil || !d.cfg.passRefusals {
		return nil
	}
	return func() {
		if up, ok := d.source.(*relaySource); ok { // the source exists before the first client
			up.source.Refused()
		}
	}
}
