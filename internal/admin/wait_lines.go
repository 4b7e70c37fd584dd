package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// waitLines writes the lines of a wait.
type waitLines struct {
	out     *json.Encoder
	control *http.ResponseController
	line    api.WaitLine // the last line with a note or the progress
	last    time.Time    // time of the last write
}

func newWaitLines(w http.ResponseWriter) *waitLines {
	l := &waitLines{control: http.NewResponseController(w)}
	l.out = json.NewEncoder(&slowly{w, l.control})
	l.out.SetEscapeHTML(false)
	return l
}

func (l *waitLines) send(line api.WaitLine) error {
	l.last = time.Now()
	if err := l.out.Encode(line); err != nil {
		return errEnding // the caller has disconnected
	}
	if l.control.Flush() != nil {
		return errEnding
	}
	return nil
}

// keepOpen sends a line without fields if nothing was sent for a while.
func (l *waitLines) keepOpen() error {
	if time.Since(l.last) < beat {
		return nil
	}
	return l.send(api.WaitLine{})
}

// note sends a note, unless it was the last one.
func (l *waitLines) note(text string) error {
	if l.line.Note == text {
		return l.keepOpen()
	}
	l.line.Note = text
	return l.send(api.WaitLine{Note: text})
}

// progress sends the progress of all servers if it has changed.
func (l *waitLines) progress(p api.WaitProgress) error {
	if l.line.Progress != nil && *l.line.Progress == p {
		return l.keepOpen()
	}
	l.line.Progress = &p
	return l.send(api.WaitLine{Progress: &p})
}

// progressOf counts the clients of all servers by their answers to the awaited revision, and the servers
// that serve it.
func progressOf(r *api.WaitResult, revision uint64) api.WaitProgress {
	p := api.WaitProgress{Revision: fmt.Sprintf("r%d", revision), Servers: len(r.Replicas)}
	for _, x := range r.Replicas {
		if x.Clients == nil {
			continue
		}
		if x.Served {
			p.Serving++
			p.Acked += x.Clients.By[api.Synced] + x.Clients.By[api.Idle]
			p.Refused += x.Clients.By[api.Nacked]
		}
		p.Waiting += x.Clients.Connected
	}
	p.Waiting = max(p.Waiting-p.Acked-p.Refused, 0)
	return p
}
