package revisionapi

import (
	"errors"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// A Problem is the reason why a request is refused.
type Problem struct {
	Is    error  // kind of the problem: [revisions.ErrNotFound], [revisions.ErrConflict], ErrWrong or ErrCannot
	Field string // the wrong field of the request; "": none
	Text  string // may contain text of the request
	Hint  string // a possible remedy; "": none known
}

// The kinds of refusals.
var (
	ErrWrong  = errors.New("invalid request")
	ErrCannot = errors.New("impossible request")
)

func (p *Problem) Error() string {
	if p.Field != "" {
		return p.Field + ": " + p.Text
	}
	return p.Text
}

func (p *Problem) Unwrap() error { return p.Is }

// Remedy returns how to repair a store that is damaged, or that was replaced by an older or different one; "": the error
// has another reason.
func Remedy(err error) string {
	switch {
	case errors.Is(err, revisions.ErrBackwards):
		return "put back the newest copy of the store, or restore the revision and the freezes that the servers serve (chancery store restore --help); to go back on purpose, empty --state-dir of each server and restart it"
	case errors.Is(err, revisions.ErrDamaged):
		return "chancery store restore --store URL lists the intact revisions"
	}
	return ""
}
