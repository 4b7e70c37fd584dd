package admin

import (
	"context"
	"net/http"

	"github.com/chancery-xds/chancery/internal/adminapi"
	"github.com/chancery-xds/chancery/internal/status"
)

func (s *Server) status(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	st := adminapi.Status{APIVersion: adminapi.Version, Kind: adminapi.KindStatus, Server: s.About, Config: s.Config()}
	st.Clients, st.Refusals, st.Troubles = s.Tracker.Summary()
	st.Clients = counts(st.Clients)
	st.Refusals, st.Troubles = s.blamed(r.Context(), st.Refusals), some(st.Troubles)
	answer(w, http.StatusOK, st)
	return nil
}

// counts have a map, which is {} if there is nothing to count.
func counts(c adminapi.Counts) adminapi.Counts {
	if c.By == nil {
		c.By = map[adminapi.State]int{}
	}
	return c
}

// blamed returns refusals with the resources at fault, as far as these are found soon.
func (s *Server) blamed(ctx context.Context, all []adminapi.Refusal) []adminapi.Refusal {
	if len(all) == 0 {
		return []adminapi.Refusal{}
	}
	ctx, cancel := context.WithTimeout(ctx, blameTime)
	defer cancel()
	return some(s.Explainer.Blame(ctx, all))
}

func (s *Server) refusals(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	_, all, _ := s.Tracker.Summary()
	answer(w, http.StatusOK, adminapi.RefusalList{APIVersion: adminapi.Version, Kind: adminapi.KindRefusalList, Items: s.blamed(r.Context(), all)})
	return nil
}

func (s *Server) groups(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	by := map[string]adminapi.Counts{}
	for _, c := range s.Tracker.Clients(status.Filter{All: true}).Items {
		for _, g := range c.Groups {
			n := counts(by[g])
			n.Connected++
			n.By[c.State]++
			by[g] = n
		}
	}
	list := adminapi.GroupList{APIVersion: adminapi.Version, Kind: adminapi.KindGroupList, Items: some(s.Groups())}
	for i, g := range list.Items {
		list.Items[i].Clients = counts(by[g.Name])
	}
	answer(w, http.StatusOK, list)
	return nil
}

func (s *Server) version(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	v := s.Version
	v.APIVersion, v.Kind, v.Server = adminapi.Version, adminapi.KindVersion, s.About
	answer(w, http.StatusOK, v)
	return nil
}
