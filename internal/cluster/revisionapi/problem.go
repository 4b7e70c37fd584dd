package revisionapi

import "errors"

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

// RestoreHint is the hint about a damaged store.
const RestoreHint = "chancery store restore --store URL lists the intact revisions"
