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
)

// What is watched is asked for again when something has happened, but not sooner than `often`
// after the last answer, and four times as long as that took: a large fleet has events all the
// time, and its server has more to do. Without events it is asked for after `seldom`, since a
// client that does not answer becomes STALE by the clock alone.
const (
	often  = 500 * time.Millisecond
	seldom = 10 * time.Second
	retry  = time.Second // after the server was lost
)

// A following shows an answer, and shows it again when it has changed.
type following struct {
	cmd  *cobra.Command
	ask  *AdminFlags
	show func(*Repaint) error // asks, and prints
	on   *Repaint             // nil: what changes is appended

	shown  bool   // at least once
	broken string // what is wrong since the last answer, and is said; "": nothing
}

// Follow shows an answer until the command is interrupted. A server that is lost is looked for; one
// that gives not even the first answer is an error.
func Follow(cmd *cobra.Command, a *AdminFlags, o *Output, show func(*Repaint) error) error {
	ctx, stop := signal.NotifyContext(Context(cmd), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd.SetContext(ctx)
	f := &following{cmd: cmd, ask: a, show: show}
	if o.People() {
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
			f.say(f.broken + ": trying again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry):
		}
	}
}

// listen shows the answer whenever there are events, until there is an error.
func (f *following) listen(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d, err := f.ask.Dial()
	if err != nil {
		return err
	}
	defer d.Close()
	bell, ended := make(chan struct{}, 1), make(chan error, 1)
	bell <- struct{}{} // of what happens before the server knows that this is a reader
	go func() {
		for _, err := range d.Events(ctx, adminclient.EventFilter{New: true}) {
			if err != nil {
				ended <- err // comes last
				return
			}
			select {
			case bell <- struct{}{}:
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
			f.say("the server answers again")
		}
		f.shown, f.broken = true, ""
		for _, wait := range []struct {
			bell chan struct{}
			most time.Duration
		}{{nil, max(often, 4*time.Since(began))}, {bell, seldom}} {
			select {
			case err := <-ended:
				return AdminError(err)
			case <-wait.bell:
			case <-time.After(wait.most):
			}
		}
	}
}

// say says what is not the answer, beneath what is drawn. What is drawn next is beneath that.
func (f *following) say(text string) {
	fmt.Fprintln(f.cmd.ErrOrStderr(), "chancery:", text)
	if f.on != nil {
		f.on.lines = 0
	}
}

// FollowWhole is follow of answers that are printed whole. What is appended has changed.
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
		now, _ := json.Marshal(answer) // has no value that JSON lacks
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

// A Repaint is a part of a terminal that is drawn again in its place.
type Repaint struct {
	w     io.Writer
	lines int // drawn, above the cursor
	size  [2]int
}

// repaintOf returns nil if nobody looks at what is written.
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

// Draw prints in the place of what was drawn before, as much as the terminal has room for.
func (r *Repaint) Draw(print func(io.Writer)) error {
	columns, lines := TerminalSize(r.w.(*os.File))
	var b bytes.Buffer
	print(&Page{Out: &b, Columns: columns})
	return r.paint(b.String(), columns, lines)
}

func (r *Repaint) paint(text string, columns, lines int) error {
	rows := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if most := max(lines-1, 1); len(rows) > most { // the cursor is beneath them
		more := len(rows) - most + 1
		rows = append(rows[:most-1], fmt.Sprintf("(%s more: without -w all are shown)", Amount(more, "line")))
	}
	var out strings.Builder
	size := [2]int{columns, lines}
	switch {
	case r.lines > 0 && size != r.size: // the terminal has broken its lines anew
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
