package protocoltest

import (
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A memory is what SotW clients were told, by type URL and version, as
// [protocol.Options.Told] wants it. It forgets nothing.
type memory map[[2]string]*protocol.World

func (m memory) note(e protocol.Event) {
	if e.Kind == protocol.Sent && e.World != nil {
		m[[2]string{e.Type.URL, e.Version}] = e.World
	}
}

func (m memory) world(t *xds.Type, version string) *protocol.World {
	return m[[2]string{t.URL, version}]
}
