package admin

import (
	"net/http"

	"github.com/chancery-xds/chancery/internal/adminapi"
)

func (s *Server) status(w http.ResponseWriter, _ *http.Request) error {
	st := adminapi.Status{APIVersion: adminapi.Version, Kind: adminapi.KindStatus, Server: s.About, Config: s.Config(), Clients: adminapi.Counts{By: map[adminapi.State]int{}}, Refusals: []adminapi.Refusal{}, Troubles: []adminapi.Trouble{}}
	answer(w, http.StatusOK, st)
	return nil
}
