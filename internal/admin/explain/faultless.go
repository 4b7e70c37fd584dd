package explain

import (
	"sync"

	"github.com/chancery-xds/chancery/xds"
)

// maxFaultless is the maximum number of entries. A full cache is emptied.
const maxFaultless = 100_000

// A faultlessCache remembers resources without known faults. A client may refuse thousands of
// resources, and the same refusal is often explained again. The zero value is an empty cache.
type faultlessCache struct {
	mu  sync.Mutex // never held during I/O
	all map[content]bool
}

// A content identifies the content of a resource.
type content struct {
	url string
	sum xds.Sum
}

func (s *faultlessCache) has(r *xds.Resource) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[content{r.Type.URL, r.Sum}]
}

func (s *faultlessCache) add(r *xds.Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil || len(s.all) >= maxFaultless {
		s.all = map[content]bool{}
	}
	s.all[content{r.Type.URL, r.Sum}] = true
}
