package chaos

import (
	"fmt"
	"time"

	"github.com/chancery-xds/chancery/e2e/harness"
)

var networkRows = []row{
	{name: "SAFE-1 half-open connections", fault: halfOpen},
	{name: "SAFE-2 clients that read nothing, and slow ones", fault: slowReaders},
	{name: "SAFE-9 2,000 clients reconnect at once", fast: true, setup: setup{clients: 2000, far: true}, fault: reconnects},
}

// Both Envoys and a tenth of the fleet lose the connection to the server without a notice on either
// side. Each side notices by its own pings. The other clients are not affected.
func halfOpen(r *rig) {
	r.proxy.freeze()
	far := map[*client]bool{}
	for i, c := range r.fleet.clients {
		far[c] = r.distant(i)
	}
	took := r.notices(5*time.Second, func(c *client) bool { return far[c] })
	r.note("the others were told a change in %.1f s", took.Seconds())
	back := r.converges("through new connections")
	r.note("those behind had it: %v", back)
	gone := back.told + harness.Eventually(r.t, patience, "the server gives up what has vanished", func() error {
		m, err := r.Metrics()
		if err == nil && int(m["xds_server_streams_open"]) != r.before.Streams {
			err = fmt.Errorf("%v streams are open", m["xds_server_streams_open"])
		}
		return err
	})
	r.note("the server gave up their streams within %.0f s", max(gone, time.Since(r.begun)).Seconds())
}

// The network returns, and all clients reconnect and state what they have.
func reconnects(r *rig) {
	r.proxy.cut()
	r.note("all back: %v", r.converges("after the cut"))
	r.nothingNew()
	m, err := r.Metrics()
	r.must(err)
	r.note("peak of memory %.0f MiB, %v refused", r.peak(), m["xds_server_throttled_total"])
}
