package revisionapi

import "errors"

// A Problem is why something that people ask for is not done.
type Problem struct {
	Is    error  // of which kind it is: [revisions.ErrNotFound], [revisions.ErrConflict], ErrWrong or ErrCannot
	Field string // of the request, that is wrong; "": it is none
	Text  string // may have what who asks has said
	Hint  string // what may help; "": nobody knows
}

// What is wrong with what people ask for.
var (
	ErrWrong  = errors.New("it is asked for wrongly")
	ErrCannot = errors.New("it cannot be done")
)

func (p *Problem) Error() string {
	if p.Field != "" {
		return p.Field + ": " + p.Text
	}
	return p.Text
}

func (p *Problem) Unwrap() error { return p.Is }
