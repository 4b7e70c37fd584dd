package quarantine

import (
	"sync"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/internal/protoscan"
	"github.com/chancery-xds/chancery/xds"
)

const (
	maxScanned = 20_000 // assignments in which an address is looked up; in a larger table, any address counts as taken
	maxTaken   = 100    // cached results
)

// taken reports whether an earlier version of an assignment has an address that now belongs to another one.
// The client must not send requests there. The zero value has no results.
type taken struct {
	mu  sync.Mutex // held for memory access only
	all map[takenKey]bool
}

// A takenKey is the content of a table, and an earlier version of a name.
type takenKey struct {
	table, earlier xds.Sum
	name           string
}

func (k *taken) has(table *xds.Table, r *xds.Resource) bool {
	key := takenKey{table.Versions().Sum(), r.Sum, r.Name}
	k.mu.Lock()
	is, known := k.all[key]
	k.mu.Unlock()
	if known {
		return is
	}
	is = takenIn(table, r)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil || len(k.all) >= maxTaken {
		k.all = map[takenKey]bool{}
	}
	k.all[key] = is
	return is
}

func takenIn(table *xds.Table, r *xds.Resource) bool {
	left := map[string]bool{}
	addresses(r.Body, func(address string) { left[address] = true })
	if now := table.Lookup(r.Name); now != nil {
		addresses(now.Body, func(address string) { delete(left, address) })
	}
	if len(left) == 0 {
		return false
	}
	if table.Len() > maxScanned {
		return true
	}
	for o := range table.All() {
		found := false
		if o.Name != r.Name {
			addresses(o.Body, func(address string) { found = found || left[address] })
		}
		if found {
			return true
		}
	}
	return false
}

// assignmentAddress are the field numbers from a ClusterLoadAssignment to the addresses of its endpoints:
// endpoints, lb_endpoints, endpoint, address.
var assignmentAddress = []protowire.Number{2, 2, 1, 1}

// addresses calls f with each address of an assignment, encoded. A malformed message has no more addresses.
func addresses(body []byte, f func(string)) { scan(body, assignmentAddress, f) }

func scan(message []byte, path []protowire.Number, f func(string)) {
	if len(path) == 0 {
		f(string(message))
		return
	}
	for field, err := range protoscan.Fields(message) {
		if err != nil {
			return
		}
		if field.Number == path[0] && field.Type == protowire.BytesType {
			scan(field.Bytes, path[1:], f)
		}
	}
}
