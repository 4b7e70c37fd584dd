package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	textutil "github.com/chancery-xds/chancery/internal/text"
)

// A followed answer is requested again after an event. The next request comes at the earliest minRefresh
// after the last answer. It also comes at the earliest after four times the duration of the last request,
// because a large fleet has events all the time, and its server has other work. Without events, the next
// request comes after maxRefresh, because a client becomes STALE without an event.
const (
	minRefresh     = 500 * time.Millisecond
	maxRefresh     = 10 * time.Second
	reconnectDelay = time.Second // delay before a new connection to the server
)

// A following prints an answer, and prints it again when it has changed.
type following struct {
	cmd  *cobra.Command
	ask  *AdminFlags
	show func(*Repaint) error // requests and prints the answer
	on   *Repaint             // nil: a changed answer is appended

	shown  bool   // an answer was printed
	broken string // the error that the user has seen after the last answer; "": none
}

// Follow prints an answer until the command is interrupted. After a lost connection it connects again.
// Follow returns an error if the server does not give a first answer.
func Follow(cmd *cobra.Command, a *AdminFlags, o *Output, show func(*Repaint) error) error {
	ctx, stop := signal.NotifyContext(Context(cmd), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd.SetContext(ctx)
	f := &following{cmd: cmd, ask: a, show: show}
	if o.ForPeople() {
		f.on = repaintOf(cmd.OutOrStdout())
	}
	for {
		err := f.listen(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if _, is := errors.AsType[Failure](err); !is || !f.shown {
			return err
		}
		if f.broken != err.Error() {
			f.broken = err.Error()
			f.notify(f.broken + ": trying again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reconnectDelay):
		}
	}
}

// listen prints the answer after each event, until there is an error.
func (f *following) listen(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d, err := f.ask.Dial()
	if err != nil {
		return err
	}
	defer d.Close()
	changed, ended := make(chan struct{}, 1), make(chan error, 1)
	changed <- struct{}{} // request an answer now: events before the subscription are not reported
	go func() {
		for _, err := range d.Events(ctx, adminclient.EventFilter{New: true}) {
			if err != nil {
				ended <- err // the goroutine sends nothing after it
				return
			}
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}()
	for {
		began := time.Now()
		if err := f.show(f.on); err != nil {
			return err
		}
		if f.broken != "" {
			f.notify("the server answers again")
		}
		f.shown, f.broken = true, ""
		for _, wait := range []struct {
			changed chan struct{}
			most    time.Duration
		}{{nil, max(minRefresh, 4*time.Since(began))}, {changed, maxRefresh}} {
			select {
			case err := <-ended:
				return AdminError(err)
			case <-wait.changed:
			case <-time.After(wait.most):
			}
		}
	}
}

// notify prints a message below the drawn answer. Later answers are drawn below the message.
func (f *following) notify(text string) {
	fmt.Fprintln(f.cmd.ErrOrStderr(), "chancery:", text)
	if f.on != nil {
		f.on.lines = 0
	}
}

// FollowWhole is Follow for answers that are printed as a whole. Without a terminal, it prints an answer
// only if the answer has changed.
func FollowWhole(cmd *cobra.Command, a *AdminFlags, o *Output, get func() (answer any, print func(io.Writer), _ error)) error {
	var before []byte
	return Follow(cmd, a, o, func(on *Repaint) error {
		answer, print, err := get()
		if err != nil {
			return err
		}
		if on != nil {
			return on.Draw(print)
		}
		now, _ := json.Marshal(answer) // cannot fail: the answer came from JSON
		if bytes.Equal(now, before) {
			return nil
		}
		if before != nil {
			fmt.Fprintln(cmd.OutOrStdout())
		}
		before = now
		print(o.Page(cmd))
		return nil
	})
}

// A Repaint is a part of a terminal that is redrawn in its place.
type Repaint struct {
	w     io.Writer
	lines int // number of drawn lines above the cursor
	size  [2]int
}

// repaintOf returns nil if w is not a terminal on which text can be redrawn.
func repaintOf(w io.Writer) *Repaint {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return nil
	}
	if columns, lines := TerminalSize(f); columns < MinColumns || lines < 2 {
		return nil
	}
	return &Repaint{w: w}
}

// Draw replaces the text drawn before, and cuts the new text to the size of the terminal.
func (r *Repaint) Draw(print func(io.Writer)) error {
	columns, lines := TerminalSize(r.w.(*os.File))
	var b bytes.Buffer
	print(&Page{Out: &b, Columns: columns})
	return r.paint(b.String(), columns, lines)
}

func (r *Repaint) paint(text string, columns, lines int) error {
	rows := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if most := max(lines-1, 1); len(rows) > most { // the cursor needs the line below
		more := len(rows) - most + 1
		rows = append(rows[:most-1], fmt.Sprintf("(%s more: without -w all are shown)", textutil.Amount(more, "line")))
	}
	var out strings.Builder
	size := [2]int{columns, lines}
	switch {
	case r.lines > 0 && size != r.size: // if the size has changed, the terminal has wrapped the lines differently
		out.WriteString("\x1b[H\x1b[2J")
	case r.lines > 0:
		fmt.Fprintf(&out, "\x1b[%dA\x1b[J", r.lines)
	}
	r.size = size
	for _, row := range rows {
		out.WriteString(row + "\n")
	}
	r.lines = len(rows)
	_, err := io.WriteString(r.w, out.String())
	return err
}
