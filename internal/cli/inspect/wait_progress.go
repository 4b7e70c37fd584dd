package inspect

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/text"
)

// A progress shows how many servers and clients have a revision. On a terminal it redraws a bar. For
// other writers it prints a line after each change.
type progress struct {
	w       io.Writer
	columns int // 0: not a terminal
	last    string
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w}
	if f, ok := w.(*os.File); ok {
		p.columns, _ = cli.TerminalSize(f)
		if p.columns < cli.MinColumns {
			p.columns = 0
		}
	}
	return p
}

const barWidth = 20

func (p *progress) show(x *api.WaitProgress) {
	state := fmt.Sprintf("%s: %s acked, %s refused, %s waiting; served by %d of %s", text.Line(x.Revision), text.Number(x.Acked), text.Number(x.Refused), text.Number(x.Waiting), x.Serving, text.Amount(x.Servers, "server"))
	if p.columns == 0 {
		if state != p.last {
			fmt.Fprintln(p.w, "chancery: "+state)
		}
		p.last = state
		return
	}
	full := 0
	if all := x.Acked + x.Refused + x.Waiting; all > 0 {
		full = min(max(barWidth*x.Acked/all, 0), barWidth)
	}
	line := "[" + strings.Repeat("#", full) + strings.Repeat("-", barWidth-full) + "] " + state
	if len(line) >= p.columns {
		line = line[:p.columns-1]
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", line)
	p.last = line
}

// end ends the line of the bar.
func (p *progress) end() {
	if p.columns > 0 && p.last != "" {
		fmt.Fprintln(p.w)
		p.last = ""
	}
}
