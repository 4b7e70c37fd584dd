package explain

import (
	"sync"

	"github.com/chancery-xds/chancery/xds"
)

// maxSound is how many resources are remembered in which nothing was found.
const maxSound = 100_000

// A sound remembers in which resources nothing was found: a client may have refused thousands,
// and who looks at that looks again. The zero value remembers none.
type sound struct {
	mu  sync.Mutex // held for memory only
	all map[content]bool
}

// A content is what is in a resource, whichever that is.
type content struct {
	url string
	sum xds.Sum
}

func (s *sound) has(r *xds.Resource) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[content{r.Type.URL, r.Sum}]
}

func (s *sound) add(r *xds.Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil || len(s.all) >= maxSound {
		s.all = map[content]bool{}
	}
	s.all[content{r.Type.URL, r.Sum}] = true
}
