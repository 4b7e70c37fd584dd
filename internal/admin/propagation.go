package admin

import (
	"net/http"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
)

// maxMissing is the maximum number of clients in an answer about propagation.
const maxMissing = 20

// unsettled are the states of clients that have not accepted the newest configuration.
var unsettled = []api.State{api.Nacked, api.Stale, api.Waiting, api.Sent, api.NotSent}

func (s *Server) propagation(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	n, _, _ := s.Tracker.SummaryOf(clients.Filter{})
	out := api.Propagation{APIVersion: api.Version, Kind: api.KindPropagation, Items: some(s.Tracker.Propagation()), Clients: counts(n), Missing: []api.Missing{}}
	list := s.Tracker.Clients(clients.Filter{States: unsettled, Limit: maxMissing}).Items
	s.waits(r.Context(), list)
	for _, c := range list {
		if c.State == api.Synced || c.State == api.Idle { // it has accepted all in the meantime
			continue
		}
		out.Missing = append(out.Missing, missingOf(&c))
	}
	answer(w, http.StatusOK, out)
	return nil
}

// missingOf describes why a client has not accepted the newest configuration.
func missingOf(c *api.Client) api.Missing {
	m := api.Missing{Node: c.Node, Path: c.Path, State: c.State}
	for _, t := range c.Types {
		if t.State != c.State {
			continue
		}
		m.Type = t.Type
		if t.Nacked != nil {
			m.Why = t.Nacked.Error
		}
		break
	}
	return m
}
